import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { BodyTime } from "../../../src/serve/http/request-handler.ts";

const servers: ReturnType<typeof createServer>[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

/** Answers with how many bytes came. `wholeMs` has long passed when the client has sent all. */
async function served(
  isUpload: boolean,
  idleMs: number,
  whenRead = Promise.resolve(),
): Promise<{ port: number; ended: string[] }> {
  const ended: string[] = [];
  const server = createServer({ requestTimeout: 0 }, async (request, response) => {
    const time = new BodyTime(request, response, () => ended.push("ended"), { wholeMs: 400, idleMs });
    if (isUpload) time.asUpload();
    await whenRead;
    const bytes = await buffer(request).catch(() => null);
    if (bytes !== null) response.end(String(bytes.length));
  });
  servers.push(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { port: (server.address() as AddressInfo).port, ended };
}

async function sent(
  port: number,
  pieces: number,
  everyMs: number,
  end = true,
): Promise<[status: number, text: string]> {
  const request = httpRequest({ port, host: "127.0.0.1", method: "POST" });
  const answer = once(request, "response") as Promise<[IncomingMessage]>;
  request.on("error", () => {});
  for (let piece = 0; piece < pieces; piece += 1) {
    request.write("12345");
    await sleep(everyMs);
  }
  if (end) request.end();
  const [response] = await answer;
  return [response.statusCode ?? 0, (await buffer(response)).toString()];
}

it("lets an upload take as long as its bytes come", async () => {
  const { port, ended } = await served(true, 20_000);
  expect(await sent(port, 12, 60)).toEqual([200, "60"]);
  expect(ended).toEqual([]);
});

it("ends an upload of which no byte comes, with the reason", async () => {
  const { port, ended } = await served(true, 300);
  expect(await sent(port, 1, 0, false)).toEqual([408, expect.stringContaining("no bytes came")]);
  expect(ended).toEqual(["ended"]);
});

it("ends any other request that has not come in time, although bytes come", async () => {
  const { port } = await served(false, 20_000);
  expect(await sent(port, 12, 60, false)).toEqual([408, expect.stringContaining("did not come in time")]);
});

it("does not end an upload that waits for Corral to take it", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { port, ended } = await served(true, 300, promise);
  const answer = sent(port, 4, 0);
  await sleep(900);
  expect(ended).toEqual([]);
  resolve();
  expect(await answer).toEqual([200, "20"]);
});
