import { randomBytes } from "node:crypto";
import { expect, inject, it } from "vitest";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { attempts, items, loadedFleet, noCollisions, SPEC, settlementOf } from "../journal/journal-fixture.ts";

const ITEMS = 60;

const SHARED = { needs: [], priority: 0, weight: 1 };

/** How many rows of items and requests a new database reads. `updated`: how many items are changed at least. */
async function rowsRead(use: (store: PostgresStore) => Promise<void>, updated: number): Promise<number> {
  const [url, schema] = [inject("postgres") ?? "", `test_${randomBytes(6).toString("hex")}`];
  const options = { project: "p", self: "me", schema, isDead: () => false, isAlive: () => true };
  {
    await using store = await PostgresStore.open(await connectServer(url, schema), options);
    await use(store);
  }
  await using connection = await connectServer(url, schema);
  // What a process read is counted when its connections have ended.
  await expect
    .poll(async () => {
      const [row] = await connection.query<{ updated: number }>(
        "SELECT n_tup_upd AS updated FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'items'",
        [schema],
      );
      return row?.updated;
    })
    .toBeGreaterThanOrEqual(updated);
  const [row] = await connection.query<{ read: number }>(
    `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int AS read FROM pg_stat_user_tables
     WHERE schemaname = $1 AND relname IN ('items', 'requests')`,
    [schema],
  );
  return row?.read ?? 0;
}

it("reads a few rows for each item, whatever fleets were there when the plans were made", async () => {
  const work = async (store: PostgresStore, fleet: string): Promise<void> => {
    const queue = await store.queue(fleet);
    for (let done = 0; done < ITEMS; done += 1) {
      const [item] = (await queue.claim(1, () => ({ run: `run-${done}`, cell: null }))).items;
      const index = item?.request.index ?? -1;
      const settled = await queue.settle(index, 1, settlementOf(index, { run: `run-${done}`, attempt: 1 }));
      expect(settled.ok).toBe(true);
    }
  };
  const read = await rowsRead(async (store) => {
    await work(store, await loadedFleet(store, 3000));
    await work(store, await loadedFleet(store, 2000));
  }, 4 * ITEMS);
  expect(read / (2 * ITEMS)).toBeLessThan(150);
});

it("reads a few rows for each item that a machine claims and delivers, also of fleets that were just loaded", async () => {
  const attempt = attempts();
  const read = await rowsRead(async (store) => {
    for (const count of [20, 6000]) {
      const fleet = await store.create({ ...SPEC, machines: SHARED });
      await store.load(fleet, items(count), noCollisions);
      await store.work.offer(fleet, { declarations: {}, images: {}, trees: {} });
      const queue = await store.queue(fleet);
      await using machine = await store.work.join({ name: "m", labels: [], slots: 16, version: "0" });
      for (let claims = 0; claims < 20; claims += 1) {
        await machine.offers();
        const claimed = await machine.claim([fleet], 16, attempt);
        for (const { request, attempt } of claimed) {
          const { result } = settlementOf(request.index, { attempt });
          await machine.deliver(fleet, request.index, attempt, { result, streams: null, changeset: null, more: null });
        }
        for (const { index, attempt } of await store.work.deliveries(fleet, 16))
          await queue.settle(index, attempt, settlementOf(index, { attempt }));
      }
    }
  }, 1020);
  expect(read / 340).toBeLessThan(200);
});
