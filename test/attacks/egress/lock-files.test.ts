import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import { expect } from "vitest";
import { type Attack, attacked, refused, type Tried, type World } from "./arena.ts";
import { raw, request } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/* A registry in the hands of an attacker: it may serve the files of the lock file, and nothing else counts as one. */

const FILE = `a package ${"x".repeat(100_000)} its last bytes`;
const DIGEST = `sha512-${createHash("sha512").update(FILE).digest("base64")}`;
const LAST = "its last bytes";

const ANSWERS: Readonly<Record<string, (response: ServerResponse) => void>> = {
  "a changed byte": (response) => response.end(FILE.replace("x", "y")),
  "a changed byte in chunks": (response) => {
    for (let at = 0; at < FILE.length; at += 10_000) response.write(FILE.replace("x", "y").slice(at, at + 10_000));
    response.end();
  },
  "bytes behind its end": (response) => response.end(`${FILE} evil ${LAST}`),
  "bytes in front": (response) => response.end(`evil ${FILE}`),
  "another file": (response) => response.end(LAST),
  "another encoding": (response) => response.setHeader("content-encoding", "gzip").end(FILE.replace("x", "y")),
  "a part as if it was asked for": (response) =>
    response.writeHead(206, { "content-range": `bytes 0-13/${FILE.length}` }).end(LAST),
  "a redirect": (response) => response.writeHead(302, { location: "http://evil.test/f.tgz" }).end(LAST),
  "a changed file as an error": (response) => response.writeHead(404).end(`evil ${LAST}`),
};

async function open(sites: Sites): Promise<World> {
  const kinds = Object.keys(ANSWERS);
  const site = await sites.open("registry", {
    ports: {
      8080: {
        kind: "http",
        answer: (asked, response) => {
          asked.resume();
          const index = Number(/^\/f([0-9]+)\.tgz/.exec(asked.url ?? "")?.[1] ?? -1);
          const answer = ANSWERS[kinds[index] ?? ""];
          if (answer === undefined) response.end(FILE);
          else answer(response);
        },
      },
    },
  });
  const paths = [...kinds.map((_, index) => `/f${index}.tgz`), "/good.tgz", "/twice.tgz"];
  const addresses = [`${site.address}/32`];
  const artifacts = paths.map((path) => ({ path, digests: [DIGEST] })).sort((a, b) => (a.path < b.path ? -1 : 1));
  return {
    network: { allow: [{ to: "registry.test:8080", methods: ["GET", "HEAD"], artifacts, tls: false, addresses }] },
    answers: { "registry.test": [site.address] },
  };
}

const pathOf = (kind: string): string => `/f${Object.keys(ANSWERS).indexOf(kind)}.tgz`;

const AT = { host: "registry.test", port: 8080 };
const LINES = ["Host: registry.test:8080", "Connection: close"];

/** Whatever a client got, it cannot take it for the whole file: the last bytes never came. */
const cut = ({ outcome }: Tried): void => {
  expect(outcome.end).not.toBe("open");
  const whole = /content-length: ([0-9]+)/i.exec(outcome.got)?.[1];
  const isComplete =
    outcome.got.includes(LAST) ||
    (whole !== undefined && outcome.bytes >= Number(whole) + outcome.got.indexOf("\r\n\r\n") + 4);
  expect(/^HTTP\/1\.1 2/.test(outcome.got) && isComplete).toBe(false);
};

attacked("a file of a lock file", open, [
  {
    title: "may be fetched",
    attempt: () => raw(AT, request("GET", "/good.tgz", LINES)),
    check: ({ outcome }) => {
      expect(outcome.got).toMatch(/^HTTP\/1\.1 200 /);
      expect(outcome.bytes).toBeGreaterThan(FILE.length);
    },
  },
  ...Object.keys(ANSWERS).map(
    (title, index): Attack => ({
      title: `is not: ${title}`,
      attempt: () => raw(AT, request("GET", `/f${index}.tgz`, LINES)),
      check: cut,
    }),
  ),
  {
    title: "is not taken for whole by a client of HTTP/1.0, for which the end of the connection ends it",
    attempt: () => raw(AT, `GET ${pathOf("a changed byte in chunks")} HTTP/1.0\r\nHost: registry.test:8080\r\n\r\n`),
    check: ({ outcome }) => expect(outcome.got).toMatch(/^HTTP\/1\.1 [45]/),
  },
  { title: "is not another path", attempt: (canary) => raw(AT, request("GET", `/${canary}`, LINES)) },
  { title: "is not below its path", attempt: (canary) => raw(AT, request("GET", `/good.tgz/${canary}`, LINES)) },
  { title: "has no query", attempt: (canary) => raw(AT, request("GET", `/good.tgz?${canary}`, LINES)) },
  { title: "is not in other letters", attempt: () => raw(AT, request("GET", "/GOOD.tgz", LINES)), check: refused },
  { title: "is not a pattern", attempt: () => raw(AT, request("GET", "/*", LINES)), check: refused },
  {
    title: "is not posted to",
    attempt: (canary) => raw(AT, request("POST", "/good.tgz", [...LINES, `Content-Length: ${canary.length}`], canary)),
  },
  {
    title: "carries no body up",
    attempt: (canary) => raw(AT, request("GET", "/good.tgz", [...LINES, `Content-Length: ${canary.length}`], canary)),
    check: ({ outcome }) => expect(outcome.end).not.toBe("open"),
  },
  {
    title: "is not fetched in pieces, which have no digest",
    attempt: () => raw(AT, request("GET", "/twice.tgz", [...LINES, "Range: bytes=0-10"])),
    check: ({ arrived }) => expect(arrived()).not.toContain("bytes=0-10"),
  },
]);
