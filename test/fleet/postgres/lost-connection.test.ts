import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { loadedFleet, settlementOf } from "../journal/journal-fixture.ts";
import { startServer } from "./server-fixture.ts";

const COUNT = 600;
const options = { project: "p", self: "me", isDead: () => false, isAlive: () => true };

/** Claims and settles one item after another until none is left; answers with the runs that were recorded, by index. */
async function work(queue: FleetQueue, recorded: Map<number, string[]>): Promise<void> {
  for (;;) {
    const { items } = await queue.claim(1, () => ({ run: randomBytes(6).toString("hex"), cell: null }));
    const [item] = items;
    if (item === undefined) return;
    const { request, attempt, run } = item;
    const taken = await queue.settle(request.index, attempt, settlementOf(request.index, { run, attempt }));
    if (taken.ok) recorded.set(request.index, [...(recorded.get(request.index) ?? []), run]);
  }
}

it("loses no item and records none twice while the server is killed again and again", async () => {
  await using server = await startServer();
  await using store = await PostgresStore.open(await connectServer(server.url), options);
  const fleet = await loadedFleet(store, COUNT);
  const queue = await store.queue(fleet);
  const recorded = new Map<number, string[]>();
  let isOver = false;
  const killing = (async () => {
    for (let round = 0; round < 4 && !isOver; round += 1) {
      await sleep(60 + 40 * round);
      await server.kill();
      await sleep(20);
      await server.start();
    }
  })();
  await Promise.all(Array.from({ length: 4 }, () => work(queue, recorded)));
  isOver = true;
  await killing;
  expect(await queue.counts()).toMatchObject({ total: COUNT, queued: 0, running: 0, done: COUNT });
  expect(recorded.size).toBe(COUNT);
  expect([...recorded.values()].filter((runs) => runs.length !== 1)).toEqual([]);
  const results = await Array.fromAsync(store.results(fleet));
  expect(results.filter(({ index, run }) => recorded.get(index)?.[0] !== run)).toEqual([]);
  expect(await store.end(fleet)).toBe("done");
}, 120_000);
