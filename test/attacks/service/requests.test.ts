import { statSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { TestService } from "../../serve/service-client.ts";
import { project, service, serviceForAll } from "../../serve/service-for-all.ts";

serviceForAll();

const codeOf = async (asked: ReturnType<TestService["ask"]>): Promise<unknown[]> => {
  const { status, json } = await asked;
  return [status, json?.error?.code];
};

/** Sends bytes as they are, and answers with what comes until the connection ends, or for so long. */
async function raw(bytes: string | Buffer, waitMs = 8000): Promise<string> {
  const socket = connect(service.port, "127.0.0.1");
  let answer = "";
  socket.setEncoding("utf8").on("data", (piece: string) => (answer += piece));
  socket.on("error", () => {});
  socket.write(bytes);
  await Promise.race([
    new Promise((resolve) => socket.once("close", resolve)),
    new Promise((resolve) => setTimeout(resolve, waitMs)),
  ]);
  socket.destroy();
  return answer;
}

const host = (): string => `Host: 127.0.0.1:${service.port}\r\n`;
const bearer = (): string => `Authorization: Bearer ${service.token}\r\n`;
const statuses = (answer: string): string[] =>
  [...answer.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status = ""]) => status);
const runsSoFar = async (): Promise<number> => (await service.ask("GET", "/v1/runs?limit=500")).json.runs.length;

describe("a page in a browser of this machine", () => {
  it("is refused under another name than the service's (DNS rebinding)", async () => {
    const { port } = service;
    for (const name of [
      "evil.example",
      `evil.example:${port}`,
      `127.0.0.1.evil.example:${port}`,
      `localhost.:${port}`,
      "127.0.0.1",
      `127.0.0.1:${port + 1}`,
      `0.0.0.0:${port}`,
      `2130706433:${port}`,
      `localhost:${port}@evil.example`,
    ])
      expect(await codeOf(service.ask("GET", "/v1/projects", { headers: { host: name } })), name).toEqual([
        403,
        "FOREIGN_REQUEST",
      ]);
    for (const path of ["/v1/health", "/nowhere"])
      expect((await service.ask("GET", path, { headers: { host: "evil.example" }, token: null })).status).toBe(403);
  });

  it("is refused with two Hosts, and with an absolute URL", async () => {
    for (const second of ["Host: evil.example\r\n", host(), bearer(), "Origin: null\r\nOrigin: null\r\n"]) {
      const two = await raw(`GET /v1/projects HTTP/1.1\r\n${host()}${second}${bearer()}\r\n`, 1500);
      expect(statuses(two)[0], second).toMatch(/^40[03]$/);
    }
    const absolute = await raw(`GET http://evil.example/v1/projects HTTP/1.1\r\n${host()}${bearer()}\r\n`, 1500);
    expect(statuses(absolute)).toEqual(["400"]);
  });

  it("is refused with an Origin of its own, and gets no CORS", async () => {
    for (const origin of [
      "http://evil.example",
      "null",
      `https://127.0.0.1:${service.port}`,
      `http://localhost:${service.port}`,
    ])
      expect(
        await codeOf(service.ask("GET", "/v1/projects", { headers: { origin, host: `127.0.0.1:${service.port}` } })),
        origin,
      ).toEqual([403, "FOREIGN_REQUEST"]);
    const site = { "sec-fetch-site": "cross-site" };
    expect((await service.ask("GET", "/v1/projects", { headers: site })).status).toBe(403);
    const asked = await service.ask("OPTIONS", "/v1/runs", { headers: { "access-control-request-method": "POST" } });
    expect(asked.status).toBe(405);
    expect(Object.keys(asked.headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
  });

  it("cannot send a form or plain text as a request", async () => {
    const raw = JSON.stringify({ worker: "echo" });
    const before = await runsSoFar();
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "text/json"])
      expect(await codeOf(service.ask("POST", "/v1/runs", { raw, headers: { "content-type": type } })), type).toEqual([
        415,
        "WRONG_CONTENT_TYPE",
      ]);
    expect(await runsSoFar()).toBe(before);
  });

  it("can neither run, frame nor guess the type of any answer", async () => {
    const replies = await Promise.all([
      service.ask("GET", "/v1/health", { token: null }),
      service.ask("GET", "/nowhere"),
      service.ask("GET", "/v1/projects", { token: null }),
      service.ask("GET", "/v1/runs", { headers: { host: "evil.example" } }),
    ]);
    for (const { headers } of replies) {
      expect(headers["content-security-policy"]).toContain("default-src 'none'; frame-ancestors 'none'");
      expect(headers["x-content-type-options"]).toBe("nosniff");
      expect(headers["cross-origin-resource-policy"]).toBe("same-origin");
      expect(headers["cache-control"]).toBe("no-store");
    }
    const broken = await raw("GET / HTTP/9.9\r\n\r\n", 1500);
    expect(broken).toContain("default-src 'none'");
  });
});

describe("a client without the right token", () => {
  it("gets nothing but the health of the service", async () => {
    const wrong = [null, "", "x", `${service.token}x`, service.token.slice(0, -1), service.token.toUpperCase()];
    for (const token of wrong)
      for (const path of [
        "/v1/projects",
        "/v1/runs",
        "/openapi.json",
        "/nowhere",
        "/v1/health/../projects",
        "//v1/health",
      ])
        expect((await service.ask("GET", path, { token })).status, `${token} ${path}`).toBeGreaterThanOrEqual(400);
    expect(await codeOf(service.ask("GET", "/v1/projects", { token: null }))).toEqual([401, "UNAUTHORIZED"]);
    const basic = { authorization: `Basic ${Buffer.from(`x:${service.token}`).toString("base64")}` };
    expect((await service.ask("GET", "/v1/projects", { headers: basic })).status).toBe(401);
    expect((await service.ask("GET", "/v1/health", { token: null })).status).toBe(200);
  });

  it("is refused a token in the URL, also beside a right one", async () => {
    for (const name of ["token", "access_token"]) {
      expect((await service.ask("GET", `/v1/projects?${name}=${service.token}`, { token: null })).status).toBe(401);
      const { status, text } = await service.ask("GET", `/v1/projects?${name}=${service.token}`);
      expect(status).toBe(400);
      expect(text).not.toContain(service.token);
    }
    expect(service.log()).not.toContain(service.token);
  });

  it("learns nothing from the time that a comparison takes", async () => {
    const near = `${service.token.slice(0, -1)}${service.token.endsWith("A") ? "B" : "A"}`;
    const far = `corral_${"A".repeat(43)}`;
    const times = { near: [] as number[], far: [] as number[] };
    for (let turn = 0; turn < 200; turn += 1)
      for (const [kind, token] of [
        ["near", near],
        ["far", far],
      ] as const) {
        const start = performance.now();
        await service.ask("GET", "/v1/nothing", { token });
        times[kind].push(performance.now() - start);
      }
    const median = (list: number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1] ?? 0;
    expect(Math.abs(median(times.near) - median(times.far))).toBeLessThan(Math.max(0.5, median(times.far) * 0.3));
  });

  it("can do only what its roles permit", async () => {
    const made = async (...roles: string[]): Promise<string> =>
      (await project.corral(["serve", "token", "create", ...roles.flatMap((role) => ["--role", role])])).stdout.trim();
    const [read, decide, run] = [await made("read"), await made("decide"), await made("run")];
    const id = "0123456789ab";
    const body = { digest: "0".repeat(64) };
    const tries = [
      ["POST", "/v1/runs", { worker: "echo" }, run],
      ["POST", "/v1/fleets", { worker: "echo", items: ["a"] }, run],
      ["POST", "/v1/sessions", { worker: "nobody" }, run],
      ["DELETE", `/v1/runs/${id}`, undefined, run],
      ["POST", `/v1/fleets/${id}/cancel`, undefined, run],
      ["POST", `/v1/changesets/${id}/apply`, body, decide],
      ["POST", `/v1/changesets/${id}/discard`, body, decide],
      ["POST", `/v1/approvals/${id}/decision`, { ...body, answer: "once" }, decide],
      ["DELETE", `/v1/grants/${id}`, undefined, decide],
    ] as const;
    for (const [method, path, sent, fitting] of tries)
      for (const token of [read, decide, run]) {
        const [status, code] = await codeOf(
          service.ask(method, path, { token, ...(sent === undefined ? {} : { body: sent }) }),
        );
        if (token === fitting) expect(status, `${method} ${path}`).not.toBe(403);
        else expect([status, code], `${method} ${path}`).toEqual([403, "FORBIDDEN"]);
      }
    const weaker = { worker: "echo", policy: "default" };
    expect(await codeOf(service.ask("POST", "/v1/runs", { token: run, body: weaker }))).toEqual([403, "FORBIDDEN"]);
    expect((await service.ask("GET", "/v1/projects", { token: read })).status).toBe(200);
  });

  it("is refused at once when its token was removed", async () => {
    const { stdout } = await project.corral(["serve", "token", "create", "--json"]);
    const { id, token } = JSON.parse(stdout);
    expect((await service.ask("GET", "/v1/projects", { token })).status).toBe(200);
    expect((await project.corral(["serve", "token", "rm", id])).status).toBe(0);
    expect((await service.ask("GET", "/v1/projects", { token })).status).toBe(401);
  });

  it("finds no token in the files, which only their user can read", async () => {
    const file = join(project.stateDir, "service/tokens.json");
    const { readFileSync } = await import("node:fs");
    expect(readFileSync(file, "utf8")).not.toContain(service.token.slice(7));
    expect(statSync(file).mode & 0o077).toBe(0);
    expect(statSync(join(project.stateDir, "service")).mode & 0o077).toBe(0);
  });
});

describe("a hostile path or query", () => {
  it("leads nowhere, however it is written", async () => {
    const ids = [
      "..",
      "%2e%2e",
      "..%2f..%2fetc",
      "%2e%2e%2f",
      "0123456789ab%00",
      "latest",
      "0123",
      "__proto__",
      "constructor",
      "0123456789AB",
      "*",
      "0123456789ab%2f..",
      "%ff",
      "%",
    ];
    for (const id of ids)
      for (const path of [
        `/v1/runs/${id}`,
        `/v1/runs/${id}/events`,
        `/v1/runs/${id}/output`,
        `/v1/changesets/${id}`,
        `/v1/changesets/${id}/files`,
        `/v1/fleets/${id}/items`,
        `/v1/sessions/${id}`,
        `/v1/approvals/${id}`,
        `/v1/projects/${id}/workers`,
      ]) {
        const { status, text } = await service.ask("GET", path);
        expect([400, 404], `${path} ${status}`).toContain(status);
        expect(text).not.toMatch(/root:|node_modules|INTERNAL/);
        expect(text).not.toContain(project.stateDir);
      }
    const fleets = ["../corral", "all/../all", "..%2fall", "/etc/passwd", "all.yaml\u0000"];
    for (const fleet of fleets) expect((await service.ask("POST", "/v1/fleets", { body: { fleet } })).status).toBe(400);
  });

  it("cannot pollute objects, and an unknown or repeated field is refused", async () => {
    const raw = '{"worker":"echo","__proto__":{"policy":"x"},"constructor":{"prototype":{"a":1}}}';
    const headers = { "content-type": "application/json" };
    expect((await service.ask("POST", "/v1/runs", { raw, headers })).status).toBe(400);
    expect((await service.ask("GET", "/v1/runs?limit=1&limit=2")).status).toBe(400);
    expect((await service.ask("GET", "/v1/runs?__proto__=1")).status).toBe(400);
    expect((await service.ask("GET", "/v1/runs?limit=1?limit=2")).status).toBe(400);
    for (const limit of ["0", "-1", "1e9", "501", "NaN", "0x10", "99999999999"])
      expect((await service.ask("GET", `/v1/runs?limit=${limit}`)).status).toBe(400);
  });

  it("puts no header or line of its own into an answer or the log", async () => {
    const before = service.log().split("\n").length;
    for (const name of ["a%0d%0aset-cookie:%20x=1", "a%0a%7b%22level%22:%22fatal%22%7d", "%1b%5b2J"]) {
      const { headers, status } = await service.ask("GET", `/v1/projects/${name}/workers`);
      expect(status).toBe(400);
      expect(headers["set-cookie"]).toBeUndefined();
    }
    for (const line of service
      .log()
      .split("\n")
      .slice(before - 1)
      .filter((one) => one !== ""))
      expect(JSON.parse(line).level).toBe("debug");
    expect(service.log()).not.toContain("fatal");
  });
});

describe("bytes that are no sound request", () => {
  it("smuggle none behind another one", async () => {
    const before = await runsSoFar();
    const inner = `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Content-Type: application/json\r\nContent-Length: 17\r\n\r\n{"worker":"echo"}`;
    const attacks = [
      `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${inner}`,
      `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Content-Length: 4\r\nContent-Length: 90\r\n\r\nabcd${inner}`,
      `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${inner}`,
      `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${inner}`,
      `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Transfer-Encoding: chunked\r\n\r\n5;a=\n\r\nabcde\r\n0\r\n\r\n${inner}`,
      `POST /v1/runs HTTP/1.1\n${host()}Content-Length: 1 \r\n x: y\r\n\r\n${inner}`,
      // A request that is refused before its body is read: what follows is its body.
      `POST /v1/runs HTTP/1.1\r\n${host()}Content-Length: ${inner.length}\r\n\r\n${inner}`,
      `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Content-Type: text/plain\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`,
      `GET /v1/runs HTTP/1.1\r\n${host()}${bearer()}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n${inner}`,
      `CONNECT evil.example:443 HTTP/1.1\r\n${host()}${bearer()}\r\n${inner}`,
    ];
    for (const attack of attacks) expect(statuses(await raw(attack, 700)), attack).not.toContain("202");
    expect(await runsSoFar()).toBe(before);
  });

  it("may be headers that never end: other clients are served meanwhile", async () => {
    const start = performance.now();
    const slow = Array.from({ length: 40 }, () => raw(`GET /v1/health HTTP/1.1\r\n${host()}X: `, 30_000));
    expect((await service.ask("GET", "/v1/health", { token: null })).status).toBe(200);
    const answers = await Promise.all(slow);
    expect(performance.now() - start).toBeLessThan(25_000);
    expect(answers.flatMap(statuses).every((status) => status === "408")).toBe(true);
  });

  it("may be more connections than there are: one with a token is served", async () => {
    const sockets = Array.from({ length: 400 }, () => connect(service.port, "127.0.0.1").on("error", () => {}));
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await service.ask("GET", "/v1/projects")).status).toBe(200);
    for (const socket of sockets) socket.destroy();
  });

  it("may be headers and bodies without measure: they are refused, and little is read", async () => {
    expect(statuses(await raw(`GET / HTTP/1.1\r\n${host()}X: ${"a".repeat(100_000)}\r\n\r\n`, 2000))).toEqual(["431"]);
    expect((await service.ask("GET", `/v1/runs?worker=${"a".repeat(9000)}`)).status).toBe(400);
    const headers = { "content-type": "application/json" };
    const large = `{"worker":"echo","input":"${"a".repeat(9 * 1024 ** 2)}"}`;
    expect(
      statuses(
        await raw(
          `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Content-Type: application/json\r\nContent-Length: ${large.length}\r\n\r\n`,
          2000,
        ),
      ),
    ).toEqual(["413"]);
    const chunked = `POST /v1/runs HTTP/1.1\r\n${host()}${bearer()}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${large.length.toString(16)}\r\n${large}\r\n0\r\n\r\n`;
    expect(statuses(await raw(chunked, 4000))).toEqual(["413"]);
    const deep = `{"worker":"echo","input":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    expect((await service.ask("POST", "/v1/runs", { raw: deep, headers })).status).toBe(400);
    const many = `{"worker":"echo","input":[${"1,".repeat(600_000)}1]}`;
    expect((await service.ask("POST", "/v1/runs", { raw: many, headers })).status).toBe(400);
    const packed = { ...headers, "content-encoding": "gzip" };
    expect((await service.ask("POST", "/v1/runs", { raw: "x", headers: packed })).status).toBe(415);
  });

  it("may be requests that break off in the middle: they are no errors of Corral", async () => {
    const { json: started } = await service.ask("POST", "/v1/runs", { body: { worker: "slow" } });
    const post = (type: string): string => `${host()}${bearer()}Content-Type: ${type}\r\nContent-Length: 1000\r\n\r\n`;
    const part = '--b\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"worker":"attached"}\r\n--b\r\n';
    const file = 'Content-Disposition: form-data; name="f"; filename="a"\r\n\r\nhalf';
    await Promise.all(
      [
        `POST /v1/runs HTTP/1.1\r\n${post("application/json")}{"worker":`,
        `POST /v1/runs HTTP/1.1\r\n${post("multipart/form-data; boundary=b")}--b\r\nContent-Dis`,
        `POST /v1/runs HTTP/1.1\r\n${post("multipart/form-data; boundary=b")}${part}${file}`,
        `GET /v1/runs/${started.run}/events HTTP/1.1\r\n${host()}${bearer()}\r\n`,
        `GET /v1/runs/${started.run}/output?follow=true HTTP/1.1\r\n${host()}${bearer()}\r\n`,
        `GET /v1/runs/${started.run}/result?wait=60 HTTP/1.1\r\n${host()}${bearer()}\r\n`,
      ].map((bytes) => raw(bytes, 500)),
    );
    const metrics = async (): Promise<string> => (await service.ask("GET", "/metrics")).text;
    await expect.poll(metrics).toMatch(/corral_http_refused_total\{reason="broken_off"\} (?:[3-9]|\d\d)/);
    await service.ask("DELETE", `/v1/runs/${started.run}`);
    expect(service.log()).not.toContain("unexpected error");
  });
});
