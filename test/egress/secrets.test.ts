import type { IncomingMessage, RequestListener } from "node:http";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import type { NetworkRule } from "../../src/sandbox/network/rule.ts";
import { ask } from "./asked.ts";
import { cellSide, LOOPBACK } from "./cell-side.ts";
import { openedByTests } from "./opened.ts";
import { httpServer } from "./servers.ts";

const open = openedByTests();
const SECRET = 'k"ey/é-0123456789';
const BYTES = Buffer.from(SECRET).toString("latin1");

/** A host to which Corral adds the secret, and what the host was asked. */
async function withSecret(answer: RequestListener, rule: Partial<NetworkRule> = {}, secretOf = async () => SECRET) {
  const asked: IncomingMessage[] = [];
  const server = await open(
    httpServer((request, response) => {
      asked.push(request);
      answer(request, response);
    }),
  );
  const to = `api.test:${server.port}`;
  const allow: NetworkRule[] = [
    { to, tls: false, set: { "x-api-key": { secret: "api" } }, paths: ["/set/**"], ...LOOPBACK, ...rule },
    { to, tls: false, without: ["x-api-key"], ...LOOPBACK },
  ];
  const cell = await open(cellSide({ network: { allow }, secretOf }));
  return { asked, cell, place: ["api.test", server.port] as const };
}

describe("a header that Corral sets", () => {
  it("takes the place of the cell's own, in whatever writing", async () => {
    const { asked, cell, place } = await withSecret((_, response) => response.end());
    const headers = { "X-API-KEY": "mine", x_api_key: "mine", "X-Api_Key": "mine" };
    await ask(cell, place, { path: "/set/a", headers });
    expect(asked[0]?.rawHeaders.filter((text) => /api.key/i.test(text))).toEqual(["x-api-key"]);
    expect(asked[0]?.headers["x-api-key"]).toBe(BYTES);
  });

  it("is on no other request, and there the cell's own is removed too", async () => {
    const { asked, cell, place } = await withSecret((_, response) => response.end());
    await ask(cell, place, { path: "/other", headers: { "x-api-key": "mine", x_api_key: "mine" } });
    expect(asked[0]?.rawHeaders.filter((text) => /api.key/i.test(text))).toEqual([]);
  });

  it("is read once a minute, for all connections", async () => {
    let read = 0;
    const secretOf = async () => {
      read += 1;
      return SECRET;
    };
    const { cell, place } = await withSecret((_, response) => response.end(), {}, secretOf);
    await Promise.all([1, 2, 3].map(() => ask(cell, place, { path: "/set/a" })));
    expect(read).toBe(1);
  });

  it("that is not available refuses the request, without a word of why", async () => {
    const secretOf = () => Promise.reject(new Error("printed: half of it"));
    const { asked, cell, place } = await withSecret((_, response) => response.end(), {}, secretOf);
    expect(await ask(cell, place, { path: "/set/a" })).toMatchObject({
      status: 502,
      body: "The secret api is not available.\n",
    });
    expect(asked).toHaveLength(0);
    expect(cell.denied).toMatchObject([{ reason: "secret" }]);
  });
});

describe("what an answer repeats of a secret", () => {
  it.each<readonly [string, string]>([
    ["as it is", SECRET],
    ["as JSON", JSON.stringify({ key: SECRET })],
    ["in a URL", encodeURIComponent(SECRET)],
    ["in base64", Buffer.from(SECRET).toString("base64")],
  ])("is taken out: %s", async (_, repeated) => {
    const bytes = Buffer.from(`<<${repeated}>>`);
    const { cell, place } = await withSecret((request, response) => {
      if (request.url?.endsWith("cut") !== true) return response.end(bytes);
      // Each byte in a piece of its own.
      for (const byte of bytes) response.write(Buffer.of(byte));
      return response.end();
    });
    for (const path of ["/set/whole", "/set/cut"]) {
      const { body } = await ask(cell, place, { path });
      expect(body).toMatch(/^<<({"key":")?\[secret\]("})?>>$/);
    }
  });

  it("is taken out of status and headers, of later answers, and of answers without the header", async () => {
    const { cell, place } = await withSecret((_, response) => {
      const flat = SECRET.replace("é", "e");
      response.writeHead(200, `Hi ${encodeURIComponent(SECRET)}`, {
        location: `https://other.test/?key=${encodeURIComponent(SECRET)}`,
        "x-echo": BYTES,
        "x-flat": flat,
      });
      response.end(BYTES, "latin1");
    });
    for (const path of ["/set/a", "/other"]) {
      const answer = await ask(cell, place, { path });
      expect(answer.statusText).toBe("Hi [secret]");
      expect(answer.headers).toMatchObject({ location: "https://other.test/?key=[secret]", "x-echo": "[secret]" });
      expect(answer.body).toBe("[secret]");
      expect(answer.headers["content-length"]).toBeUndefined();
    }
  });

  it("is taken out of what follows a scheme", async () => {
    const secretOf = async () => "Bearer abcdef123456";
    const { cell, place } = await withSecret((_, response) => response.end("token abcdef123456!"), {}, secretOf);
    expect(await ask(cell, place, { path: "/set/a" })).toMatchObject({ body: "token [secret]!" });
  });

  it("cannot come compressed or in parts", async () => {
    const { asked, cell, place } = await withSecret((_, response) => {
      response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(SECRET));
    });
    const headers = { "accept-encoding": "gzip", range: "bytes=0-3", "if-range": "x" };
    const answer = await ask(cell, place, { path: "/set/a", headers });
    expect(answer).toMatchObject({ status: 502 });
    expect(answer.body).toContain("encoding that was not asked for");
    expect(asked[0]?.headers).toMatchObject({ "accept-encoding": "identity" });
    expect(asked[0]?.headers).not.toHaveProperty("range");
    expect(asked[0]?.headers).not.toHaveProperty("if-range");
  });
});
