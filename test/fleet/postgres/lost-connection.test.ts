import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, inject, it } from "vitest";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import type { Connection } from "../../../src/fleet/postgres/connection.ts";
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

/** Two of three transactions are committed, but their answers are lost: each is tried again, as after a lost connection. */
function losingAnswers(connection: Connection): Connection {
  let count = 0;
  return {
    query: (text, values) => connection.query(text, values),
    listen: (heard) => connection.listen(heard),
    endHolders: (heldMs) => connection.endHolders(heldMs),
    async transaction(work) {
      count += 1;
      const answer = await connection.transaction((within) => work(within, false));
      return count % 3 === 0 ? answer : await connection.transaction((within) => work(within, true));
    },
    async together(statements) {
      count += 1;
      const answer = await connection.together(() => statements(false));
      return count % 3 === 0 ? answer : await connection.together(() => statements(true));
    },
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  };
}

it("knows what was committed although the answer was lost: items, claims, results and the end of the fleet", async () => {
  const schema = `test_${randomBytes(6).toString("hex")}`;
  const connection = losingAnswers(await connectServer(inject("postgres") ?? "", schema));
  await using store = await PostgresStore.open(connection, { ...options, schema });
  const fleet = await loadedFleet(store, 1200);
  const queue = await store.queue(fleet);
  const recorded = new Map<number, string[]>();
  await Promise.all(Array.from({ length: 8 }, () => work(queue, recorded)));
  expect(await queue.counts()).toMatchObject({ total: 1200, queued: 0, running: 0, done: 1200 });
  expect(recorded.size).toBe(1200);
  expect(await store.pause(fleet, "Ctrl-C")).toBe(true);
  expect(await store.takeOver(fleet)).toMatchObject({ ok: true, running: [] });
  expect(await store.end(fleet)).toBe("done");
});

it("commits through a pooler that forgets plans, and nothing of a group that fails", async () => {
  const schema = `test_${randomBytes(6).toString("hex")}`;
  await using connection = await connectServer(inject("postgres") ?? "", schema);
  await using store = await PostgresStore.open(await connectServer(inject("postgres") ?? "", schema), {
    ...options,
    schema,
  });
  const fleet = await loadedFleet(store, 1);
  const add = (why: string) => ({ text: "UPDATE corral.fleets SET why = $1 WHERE name = $2", values: [why, fleet] });
  const why = async () => (await store.find(fleet))?.why;
  await connection.together(() => [add("first"), add("second")]);
  expect(await why()).toBe("second");
  // As if the next transaction had another connection.
  await connection.query("DEALLOCATE ALL");
  await connection.together(() => [add("third"), add("fourth")]);
  expect(await why()).toBe("fourth");
  const broken = { text: "UPDATE corral.fleets SET total = 1 / (total - $1)", values: [1] };
  await expect(connection.together(() => [add("fifth"), broken, add("sixth")])).rejects.toThrow("division by zero");
  expect(await why()).toBe("fourth");
  await connection.together(() => [add("seventh")]);
  expect(await why()).toBe("seventh");
});
