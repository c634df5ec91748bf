import { createHash } from "node:crypto";
import type { RequestListener } from "node:http";
import { describe, expect, it } from "vitest";
import type { NetworkRule } from "../../src/sandbox/network/rule.ts";
import { ask, sendRaw } from "./asked.ts";
import { cellSide, LOOPBACK } from "./cell-side.ts";
import { openedByTests } from "./opened.ts";
import { httpServer } from "./servers.ts";

const open = openedByTests();
const FILE = Buffer.alloc(1_000_000, "a file of a package ");
const sha512 = (bytes: Buffer): string => `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
const sha256 = (bytes: Buffer): string => `sha256-${createHash("sha256").update(bytes).digest("base64")}`;

async function registry(answer: RequestListener, rule: Partial<NetworkRule> = {}) {
  const server = await open(httpServer(answer));
  const artifacts = [
    { path: "/a.tgz", digests: [sha512(FILE)] },
    { path: "/two.tgz", digests: [sha256(Buffer.from("b")), sha512(Buffer.from("a"))] },
  ];
  const network = {
    allow: [{ to: `r.test:${server.port}`, tls: false, artifacts, ...LOOPBACK, ...rule } satisfies NetworkRule],
  };
  const cell = await open(cellSide({ network }));
  return { cell, place: ["r.test", server.port] as const };
}

describe("a host of a lock file", () => {
  it("gives exactly the files that it names", async () => {
    const { cell, place } = await registry((request, response) => response.end(request.url === "/a.tgz" ? FILE : "a"));
    const answer = await ask(cell, place, { path: "/a.tgz" });
    expect(answer.body).toHaveLength(FILE.length);
    expect(await ask(cell, place, { path: "/two.tgz" })).toMatchObject({ status: 200, body: "a" });
    for (const path of ["/b.tgz", "/a.tgz?x", "/x/../a.tgz", "/A.tgz", "/a%2etgz"])
      expect(await ask(cell, place, { path })).toMatchObject({ status: 403 });
    expect(await ask(cell, place, { path: "/a.tgz", method: "POST", body: "x" })).toMatchObject({ status: 403 });
    expect(
      await ask(cell, place, { path: "/a.tgz", method: "GET", body: "x", headers: { "content-length": 1 } }),
    ).toMatchObject({ status: 403 });
  });

  it("never completes a file with other contents", async () => {
    const changed = Buffer.from(FILE);
    changed[500_000] = 0;
    const { cell, place } = await registry((_, response) => response.end(changed));
    const got = await sendRaw(cell, place, `GET /a.tgz HTTP/1.1\r\nHost: ${place.join(":")}\r\n\r\n`);
    expect(got.slice(got.indexOf("\r\n\r\n") + 4).length).toBeLessThan(FILE.length);
    await expect(ask(cell, place, { path: "/a.tgz" })).rejects.toThrow("aborted");
    expect(cell.denied).toMatchObject([{ reason: "digest" }]);
  });

  it("answers with a refusal in place of a small file with other contents", async () => {
    const { cell, place } = await registry((_, response) => response.end("evil"));
    expect(await ask(cell, place, { path: "/two.tgz" })).toMatchObject({ status: 502 });
    const empty = await registry((_, response) => response.end());
    expect(await ask(empty.cell, empty.place, { path: "/two.tgz" })).toMatchObject({ status: 502 });
  });

  it("gives no part of a file, and nothing else that it says", async () => {
    let ranges = 0;
    const { cell, place } = await registry((request, response) => {
      ranges += request.headers.range === undefined ? 0 : 1;
      response.writeHead(request.url === "/a.tgz" ? 206 : 404, { "x-a": "b" }).end("anything");
    });
    for (const path of ["/a.tgz", "/two.tgz"]) {
      const answer = await ask(cell, place, { path, headers: { range: "bytes=0-1" } });
      expect(answer).toMatchObject({ status: path === "/a.tgz" ? 206 : 404, body: "" });
    }
    expect(ranges).toBe(0);
  });

  it("cannot send a file that is shorter than it says", async () => {
    const { cell, place } = await registry((_, response) => {
      response.writeHead(200, { "content-length": FILE.length });
      response.write(FILE.subarray(0, 500_000), () => response.destroy());
    });
    await expect(ask(cell, place, { path: "/a.tgz" })).rejects.toThrow("aborted");
  });
});

describe("an index of packages", () => {
  it("names other hosts as the cell reaches them, also across pieces", async () => {
    const server = await open(
      httpServer((request, response) => {
        response.setHeader(
          "content-type",
          request.url === "/json" ? "application/vnd.pypi.simple.v1+json" : "text/html",
        );
        if (request.url === "/binary") response.setHeader("content-type", "application/octet-stream");
        for (const byte of '<a href="https://files.test/p">https://filed.test') response.write(byte);
        response.end();
      }),
    );
    const packages = { kind: "pypi", use: [] } as const;
    const network = {
      allow: [{ to: `r.test:${server.port}`, tls: false, methods: ["GET"], packages, ...LOOPBACK } as const],
    };
    const rewrites = [{ from: "https://files.test", to: "http://files.test" }];
    const cell = await open(cellSide({ network, rewrites }));
    const place = ["r.test", server.port] as const;
    for (const path of ["/html", "/json"])
      expect((await ask(cell, place, { path })).body).toBe('<a href="http://files.test/p">https://filed.test');
    expect((await ask(cell, place, { path: "/binary" })).body).toContain("https://files.test");
  });
});
