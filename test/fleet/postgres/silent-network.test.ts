import { once } from "node:events";
import { createServer, type Socket, connect as toSocket } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, inject, it, vi } from "vitest";
import type { AttemptDelivery } from "../../../src/fleet/model/work.ts";
import type { Connection, StatementWait } from "../../../src/fleet/postgres/connection.ts";
import { PostgresMembership } from "../../../src/fleet/postgres/membership.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";

/** Carries connections to the server of the tests. Those that are cut carry nothing any more, and are not closed. */
async function relay() {
  const { searchParams, port } = new URL(inject("postgres") ?? "");
  const path = join(searchParams.get("host") ?? "", `.s.PGSQL.${port || 5432}`);
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = toSocket(path);
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => {});
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return {
    url: `postgres://postgres@127.0.0.1:${typeof address === "object" ? address?.port : ""}/postgres`,
    cut() {
      for (const socket of sockets) socket.unpipe().pause();
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

it("asks again over another connection if the network carries nothing and reports nothing", async () => {
  await using network = await relay();
  await using db = await connectServer(network.url);
  const patience = { withinMs: 300 };
  expect(await db.query("SELECT 1 AS n", [], patience)).toEqual([{ n: 1 }]);
  network.cut();
  const sent: number[] = [];
  const onSent = (): void => void sent.push(performance.now());
  expect(await db.query("SELECT 2 AS n", [], { ...patience, onSent })).toEqual([{ n: 2 }]);
  expect(sent).toHaveLength(2);
}, 20_000);

it("closes within seconds if the network carries nothing, also while a statement waits and it listens", async () => {
  await using network = await relay();
  const db = await connectServer(network.url);
  await db.listen(() => {});
  network.cut();
  const sent = Promise.withResolvers<void>();
  const asked = expect(db.query("SELECT 1", [], { onSent: sent.resolve })).rejects.toThrow();
  await sent.promise;
  await db[Symbol.asyncDispose]();
  await asked;
}, 20_000);

describe("a machine", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const MACHINE = { name: "m", labels: [], slots: 1, version: "0" };
  /** As a connection: `answer` gives the rows of a statement, or never does. */
  const answering = (answer: (text: string, patience: StatementWait) => Promise<unknown[]>): Connection =>
    ({
      query: (text: string, _values: unknown, patience: StatementWait = {}) =>
        // It lacks no rights.
        text.includes("has_function_privilege") ? Promise.resolve([]) : answer(text, patience),
    }) as Connection;
  const never = new Promise<never>(() => {});

  it("that waited for the queue to answer does not believe that the lease is over which it was just given", async () => {
    const db = answering(async (text, { onSent }) => {
      if (!text.includes("machine_join(")) return [{ renewed: true }];
      await vi.advanceTimersByTimeAsync(25_000);
      onSent?.();
      return [{ id: "id" }];
    });
    await using member = await PostgresMembership.join(db, MACHINE);
    await vi.advanceTimersByTimeAsync(9000);
    expect(member.lost.aborted).toBe(false);
  });

  it("that has lost its lease waits for no answer of the queue", async () => {
    const db = answering((text) => (text.includes("machine_join(") ? Promise.resolve([{ id: "id" }]) : never));
    const member = await PostgresMembership.join(db, MACHINE);
    const asked = [
      member.offers(),
      member.giveBack("f", 0, 1, 0),
      member.claim(["f"], 1, () => ({ run: "r", cell: null })),
      member.deliver("f", 0, 1, {
        result: {},
        streams: null,
        changeset: null,
        more: null,
      } as unknown as AttemptDelivery),
    ].map((answer) => expect(answer).rejects.toThrow("the lease of this machine is lost"));
    await vi.advanceTimersByTimeAsync(11_000);
    await Promise.all(asked);
    await member[Symbol.asyncDispose]();
  });
});
