import { readdir, readFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { brotliCompressSync, brotliDecompressSync, deflateSync, gunzipSync, gzipSync, inflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { shownCell } from "../../run/outside-cell.ts";
import { openProject, sh } from "../../run/project-fixture.ts";
import { type Attack, attacked, type Tried, type World } from "./arena.ts";
import { raw, request } from "./shapes.ts";
import { openSites, type Sites } from "./sites.ts";

/* A secret that Corral sets on requests. The server repeats it in every way; the cell must not read it. */

const VALUE = `s3cr/t+va"lue-0123456789`;
const FORMS = [
  VALUE,
  encodeURIComponent(VALUE),
  JSON.stringify(VALUE).slice(1, -1),
  Buffer.from(VALUE).toString("base64").replace(/=+$/, ""),
  Buffer.from(VALUE).toString("base64url"),
];

const ANSWERS: Readonly<Record<string, (response: ServerResponse, value: string) => void>> = {
  body: (response, value) => response.end(`you sent ${value}.`),
  header: (response, value) => response.setHeader("x-sent", value).end("."),
  "header-name": (response) => response.setHeader("x-s3cr", "t").end("."),
  cookie: (response, value) => response.setHeader("set-cookie", `key=${encodeURIComponent(value)}; Path=/`).end("."),
  status: (response, value) => {
    response.statusMessage = `not ${value}`;
    response.statusCode = 400;
    response.end(".");
  },
  error: (response, value) => response.writeHead(500).end(`<pre>x-api-key: ${value}</pre>`),
  redirect: (response, value) =>
    response.writeHead(302, { location: `http://other.test/?key=${encodeURIComponent(value)}` }).end(),
  trailer: (response, value) => {
    response.setHeader("trailer", "x-sent");
    response.write("x");
    response.addTrailers({ "x-sent": value });
    response.end();
  },
  hints: (response, value) => {
    response.writeEarlyHints({ link: "</x>; rel=preload", "x-sent": value });
    response.end(".");
  },
  bytes: (response, value) => {
    const letters = [...`<${value}>`];
    const next = (): void => {
      const letter = letters.shift();
      if (letter === undefined) response.end();
      else {
        response.write(letter);
        setTimeout(next, 2);
      }
    };
    next();
  },
  halves: (response, value) => {
    response.write(value.slice(0, 10));
    setTimeout(() => response.end(value.slice(10)), 100);
  },
  base64: (response, value) => response.end(Buffer.from(value).toString("base64")),
  base64url: (response, value) => response.end(Buffer.from(value).toString("base64url")),
  url: (response, value) => response.end(encodeURIComponent(value)),
  json: (response, value) => response.end(JSON.stringify({ headers: { "x-api-key": value } })),
  gzip: (response, value) => response.setHeader("content-encoding", "gzip").end(gzipSync(value)),
  deflate: (response, value) => response.setHeader("content-encoding", "deflate").end(deflateSync(value)),
  brotli: (response, value) => response.setHeader("content-encoding", "br").end(brotliCompressSync(value)),
  "gzip-twice": (response, value) =>
    response.setHeader("content-encoding", "gzip, gzip").end(gzipSync(gzipSync(value))),
  "odd-encoding": (response, value) => response.setHeader("content-encoding", "x-gzip").end(gzipSync(value)),
  "unknown-encoding": (response, value) => response.setHeader("content-encoding", "rot13").end(value),
  large: (response, value) => response.end(`${"x".repeat(300_000)}${value}`),
};

async function open(sites: Sites): Promise<World> {
  const site = await sites.open("secret", {
    ports: {
      8080: {
        kind: "http",
        answer: (request, response) => {
          request.resume();
          const kind = request.url?.slice("/echo/".length).split("?")[0] ?? "";
          const answer = ANSWERS[kind] ?? ANSWERS.body;
          answer?.(response, String(request.headers["x-api-key"]));
        },
      },
      80: { kind: "http" },
    },
  });
  const addresses = [`${site.address}/32`];
  return {
    network: {
      allow: [
        {
          to: "secret.test:8080",
          methods: ["GET", "HEAD", "POST"],
          paths: ["/echo/*"],
          set: { "x-api-key": { secret: "key" } },
          tls: false,
          addresses,
        },
        { to: "secret.test:8080", methods: ["GET"], paths: ["/open/*"], tls: false, addresses },
        { to: "secret.test:80", addresses },
        { to: "lost.test:8080", set: { "x-api-key": { secret: "lost" } }, tls: false, addresses },
      ],
    },
    answers: { "secret.test": [site.address], "lost.test": [site.address] },
    secrets: { key: VALUE },
  };
}

const AT = { host: "secret.test", port: 8080 };
const LINES = ["Host: secret.test:8080", "Connection: close"];

/** The request was answered, and in nothing that came back is the secret, in any form. */
const kept = ({ outcome, canary, arrived }: Tried): void => {
  expect(arrived()).toContain(`key-of-${canary}`.slice(7));
  expect(outcome.got, outcome.end).toMatch(/^HTTP\/1\.1 /);
  for (const text of [outcome.got, decoded(outcome.got)]) for (const form of FORMS) expect(text).not.toContain(form);
  for (const piece of [VALUE.slice(0, 10), VALUE.slice(10)]) expect(outcome.got).not.toContain(piece);
};

/** The body without chunks and compression; empty if it has none that is known. */
function decoded(answer: string): string {
  const [head = "", ...rest] = answer.split("\r\n\r\n");
  let body = rest.join("\r\n\r\n");
  if (/transfer-encoding: chunked/i.test(head))
    body = body.replace(/^[0-9a-f]+\r\n/i, "").replace(/\r\n0\r\n(\r\n)?$/, "");
  for (const decode of [gunzipSync, inflateSync, brotliDecompressSync])
    try {
      return decode(Buffer.from(body, "latin1")).toString("latin1");
    } catch {
      // Another encoding, or none.
    }
  return "";
}

attacked("a secret that is set for a host", open, [
  ...Object.keys(ANSWERS).map(
    (kind): Attack => ({
      title: `is not in an answer that repeats it: ${kind}`,
      attempt: (canary) => raw(AT, request("GET", `/echo/${kind}?${canary}`, LINES)),
      check: kept,
    }),
  ),
  {
    title: "is sent, once, and nothing that the cell sends under its name",
    attempt: (canary) =>
      raw(
        AT,
        request("GET", `/echo/body?${canary}`, [...LINES, "X-API-Key: mine", "x-api-key: mine", "X-Api-Key : mine"]),
      ),
    check: ({ arrived }) => expect(arrived()).not.toContain("mine"),
  },
  {
    title: "is sent, once, beside a header of the cell of that name",
    attempt: (canary) => raw(AT, request("GET", `/echo/body?${canary}`, [...LINES, "X-API-Key: intruder"])),
    check: ({ arrived, canary }) => {
      expect(arrived()).not.toContain("intruder");
      const head = arrived().slice(arrived().indexOf(canary)).split("\r\n\r\n")[0] ?? "";
      expect(head.split(VALUE)).toHaveLength(2);
    },
  },
  {
    title: "is not sent if the cell calls it a header of one connection",
    attempt: (canary) =>
      raw(AT, request("GET", `/echo/body?${canary}`, ["Host: secret.test:8080", "Connection: close, x-api-key"])),
    check: ({ arrived, canary }) => {
      const at = arrived().indexOf(canary);
      if (at >= 0) expect(arrived().slice(at).split("\r\n\r\n")[0]).toContain(VALUE);
    },
  },
  {
    title: "is not sent to a path of another rule of the host",
    attempt: (canary) => raw(AT, request("GET", `/open/body?${canary}`, LINES)),
    check: ({ arrived, canary }) =>
      expect(arrived().slice(arrived().indexOf(canary)).split("\r\n\r\n")[0]).not.toContain(VALUE),
  },
  {
    title: "is not sent by a tunnel to the same host",
    attempt: (canary) =>
      raw(
        { host: "secret.test", port: 80 },
        request("GET", `/echo/body?${canary}`, ["Host: secret.test", "Connection: close"]),
      ),
    check: ({ arrived, canary }) =>
      expect(arrived().slice(arrived().indexOf(canary)).split("\r\n\r\n")[0]).not.toContain(VALUE),
  },
  {
    title: "is not read in pieces by ranges",
    attempt: (canary) => raw(AT, request("GET", `/echo/body?${canary}`, [...LINES, "Range: bytes=0-10"])),
    check: ({ arrived, outcome }) => {
      expect(arrived().toLowerCase()).not.toContain("range: bytes=0-10");
      expect(outcome.end).not.toBe("open");
    },
  },
  {
    title: "is not asked for in an encoding that the cell chooses",
    attempt: (canary) => raw(AT, request("GET", `/echo/body?${canary}`, [...LINES, "Accept-Encoding: gzip, zstd"])),
    check: ({ arrived, canary }) =>
      expect(arrived().slice(arrived().indexOf(canary)).split("\r\n\r\n")[0]).not.toContain("gzip"),
  },
  {
    title: "is not in the headers of an answer to HEAD",
    attempt: (canary) => raw(AT, request("HEAD", `/echo/header?${canary}`, LINES)),
    check: kept,
  },
  {
    title: "that is not there: the request is refused, and not sent without it",
    attempt: (canary) =>
      raw(
        { host: "lost.test", port: 8080 },
        request("GET", `/${canary}`, ["Host: lost.test:8080", "Connection: close"]),
      ),
    check: ({ arrived, canary, outcome, report }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.got).toMatch(/^HTTP\/1\.1 (403|502|503) /);
      expect(report.denied).toContainEqual(expect.objectContaining({ to: "lost.test:8080", reason: "secret" }));
    },
  },
]);

describe("the value of a secret", () => {
  it("is in no place that a cell, or somebody who looks at its run, can read", async () => {
    const sites = openSites();
    const site = await sites.open("site", { ports: { 8080: { kind: "http" } } });
    const rule = {
      to: "site.test:8080",
      tls: false,
      set: { "x-api-key": { secret: "key" } },
      addresses: [`${site.address}/32`],
    };
    const network = { allow: [rule] };
    const script = `curl -s http://site.test:8080/echo; env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/*/mountinfo 2>/dev/null
      curl -s --unix-socket $CORRAL_SOCKET http://corral/v1/sandbox; cat /etc/hosts; find /.corral -type f -size -100k -exec cat {} + 2>/dev/null | strings
      echo up; exec sleep 60`;
    await using project = await openProject(
      {
        workers: { w: { command: sh(script), sandbox: { network } } },
        policy: "default",
        sandbox: { network },
        yaml: { secrets: { key: { command: ["printf", "%s", VALUE.replace('"', "")] } } },
      },
      { networkHost: { resolveName: async () => [site.address] } },
    );
    const value = VALUE.replace('"', "");
    const end = new AbortController();
    const running = project.run("w", { signal: end.signal });
    await project.printed("w", "up\n");
    expect(site.arrived).toContain(value);
    const { run } = project.events[0] ?? {};
    const shown = (await (await shownCell(project.stateDir, run ?? ""))?.texts()) ?? [];
    expect(shown.join()).toContain(run);
    end.abort();
    const result = await running;
    expect(result.stdout).toContain("[secret]");
    await project.corral[Symbol.asyncDispose]();
    const kept = await filesBelow(project.stateDir);
    for (const text of [result, shown, project.events, project.planOf("w")].map((each) => JSON.stringify(each)))
      for (const form of [value, encodeURIComponent(value), Buffer.from(value).toString("base64").replace(/=+$/, "")])
        expect(text).not.toContain(form);
    expect(kept.filter((file) => file.includes(value))).toEqual([]);
    await sites[Symbol.asyncDispose]();
  });
});

/** The contents of everything that Corral keeps. */
async function filesBelow(dir: string): Promise<Buffer[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  return await Promise.all(files.map((file) => readFile(file)));
}
