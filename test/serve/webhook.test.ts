import { createHmac } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, it } from "vitest";
import { Webhook, type WebhookOptions } from "../../src/serve/work/webhook.ts";

const key = Buffer.from("k".repeat(32));
const data = {
  approval: "0123456789ab",
  project: "desk",
  worker: "clerk",
  run: "r1",
  root: "r1",
  operations: ["write"],
  timeoutMs: 300_000,
};
const question = { type: "question.waiting", data } as const;
const ended = {
  project: "desk",
  run: "r1",
  worker: "clerk",
  status: "failed",
  exitCode: 3,
  durationMs: 5,
  changeset: null,
};
const end = { type: "run.ended", data: ended } as const;

interface Received {
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

const opened: (() => void)[] = [];
afterEach(() => {
  for (const close of opened.splice(0)) close();
});

/** A receiver that gives these statuses, one after the other, and the last for all others. */
async function receiver(statuses: readonly number[], location = "/"): Promise<[WebhookOptions, Received[]]> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece);
    received.push({ headers: request.headers, body: Buffer.concat(pieces).toString() });
    response.writeHead(statuses[received.length - 1] ?? statuses.at(-1) ?? 200, { location }).end();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  opened.push(() => server.close());
  return [{ url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`), key }, received];
}

function reporting() {
  const warnings: unknown[] = [];
  const none = (): void => {};
  const log = { debug: none, info: none, error: none, warn: (...told: unknown[]) => void warnings.push(told) } as never;
  return { how: { log, over: new AbortController().signal, pausesMs: [0, 0] }, warnings };
}

it("is told of a question once, with a signature over its id, its time and its body", async () => {
  const [options, received] = await receiver([204]);
  const { how, warnings } = reporting();
  await new Webhook(options, how).tell(question);
  const [one] = received;
  expect(received).toHaveLength(1);
  expect(warnings).toEqual([]);
  expect(JSON.parse(one?.body ?? "")).toMatchObject(question);
  const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": signature } = one?.headers ?? {};
  const signed = createHmac("sha256", key).update(`${id}.${at}.${one?.body}`).digest("base64");
  expect(signature).toBe(`v1,${signed}`);
  expect(Number(at)).toBeGreaterThan(1_700_000_000);
});

it("is told again if it does not take it, with the same id, and at last only the log is", async () => {
  const [options, received] = await receiver([500, 503, 500]);
  const { how, warnings } = reporting();
  await new Webhook(options, how).tell(question);
  expect(new Set(received.map(({ headers }) => headers["webhook-id"])).size).toBe(1);
  expect(received).toHaveLength(3);
  expect(JSON.stringify(warnings.at(-1))).toContain("was not reported");
});

it("is followed to no other place", async () => {
  const [elsewhere, taken] = await receiver([200]);
  const [options, received] = await receiver([307], String(elsewhere.url));
  const { how } = reporting();
  await new Webhook(options, how).tell(question);
  expect([received.length, taken.length]).toEqual([3, 0]);
});

it("holds no question up: of very many the newest are left out, and what is stopped ends", async () => {
  const [options, received] = await receiver([200]);
  const { how, warnings } = reporting();
  const hook = new Webhook(options, how);
  await Promise.all(Array.from({ length: 101 }, () => hook.tell(question)));
  expect(received).toHaveLength(100);
  expect(JSON.stringify(warnings)).toContain("behind");
  await new Webhook(options, { ...how, over: AbortSignal.abort() }).tell(question);
  expect(received).toHaveLength(100);
});

it("is told of ends too, which leave room for questions however many they are", async () => {
  const [options, received] = await receiver([200]);
  const { how, warnings } = reporting();
  const hook = new Webhook(options, how);
  await Promise.all([...Array.from({ length: 60 }, () => hook.tell(end)), hook.tell(question)]);
  const types = received.map(({ body }) => JSON.parse(body).type);
  expect([
    types.filter((type) => type === "run.ended").length,
    types.filter((type) => type === "question.waiting").length,
  ]).toEqual([50, 1]);
  expect(warnings).toHaveLength(10);
  expect(JSON.parse(received[0]?.body ?? "").data).toEqual(ended);
});
