import { request } from "node:http";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, it } from "vitest";
import type { NetworkRule } from "../../src/sandbox/network/rule.ts";
import { type CellSide, cellSide, LOOPBACK } from "./cell-side.ts";
import { httpsServer, identityFor } from "./servers.ts";

const opened: AsyncDisposable[] = [];
afterEach(async () => {
  for (const each of opened.splice(0)) await each[Symbol.asyncDispose]();
});
function open<Opened extends AsyncDisposable>(each: Opened): Opened {
  opened.unshift(each);
  return each;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers: NodeJS.Dict<string | string[]>;
}

async function ask(cell: CellSide, host: string, inside: number, path = "/", options: object = {}, body?: string) {
  const port = await cell.port(host, inside);
  const sent = request({ host: "127.0.0.1", port, path, headers: { host: `${host}:${inside}` }, ...options });
  sent.end(body);
  return await new Promise<Answer>((resolve, reject) => {
    sent.on("error", reject).on("response", async (answer) => {
      resolve({ status: answer.statusCode ?? 0, body: await text(answer), headers: answer.headers });
    });
  });
}

describe("a host that is looked into", () => {
  it("is asked by TLS for what its rule allows", async () => {
    const identity = identityFor("api.test");
    const server = open(
      await httpsServer(identity, (req, res) => res.end(`${req.method} ${req.headers.host} ${req.url}`)),
    );
    const rule: NetworkRule = {
      to: `api.test:${server.port}`,
      methods: ["GET"],
      paths: ["/repos/acme/**"],
      ...LOOPBACK,
    };
    const cell = open(cellSide({ network: { allow: [rule] }, ca: [identity.cert] }));
    const answer = await ask(cell, "api.test", server.port, "/repos/acme/x?y=1");
    expect(answer).toMatchObject({ status: 200, body: `GET api.test:${server.port} /repos/acme/x?y=1` });
    expect((await ask(cell, "api.test", server.port, "/repos/other/x")).status).toBe(403);
    expect((await ask(cell, "api.test", server.port, "/repos/acme/x", { method: "POST" })).status).toBe(403);
    expect(cell.denied.map(({ reason }) => reason)).toEqual(["path", "method"]);
  });
});
