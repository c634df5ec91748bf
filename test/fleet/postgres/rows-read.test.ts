import { randomBytes } from "node:crypto";
import { expect, inject, it } from "vitest";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { loadedFleet, settlementOf } from "../journal/journal-fixture.ts";

const ITEMS = 60;

it("reads a few rows for each item, whatever fleets were there when the plans were made", async () => {
  const [url, schema] = [inject("postgres") ?? "", `test_${randomBytes(6).toString("hex")}`];
  const options = { project: "p", self: "me", schema, isDead: () => false, isAlive: () => true };
  const work = async (store: PostgresStore, fleet: string): Promise<void> => {
    const queue = await store.queue(fleet);
    for (let done = 0; done < ITEMS; done += 1) {
      const [item] = (await queue.claim(1, () => ({ run: `run-${done}`, cell: null }))).items;
      const index = item?.request.index ?? -1;
      const settled = await queue.settle(index, 1, settlementOf(index, { run: `run-${done}`, attempt: 1 }));
      expect(settled.ok).toBe(true);
    }
  };
  await using connection = await connectServer(url, schema);
  {
    await using store = await PostgresStore.open(await connectServer(url, schema), options);
    await work(store, await loadedFleet(store, 3000));
    await work(store, await loadedFleet(store, 2000));
  }
  // What a process read is counted when its connections have ended.
  await expect
    .poll(async () => {
      const [row] = await connection.query<{ updated: number }>(
        "SELECT n_tup_upd AS updated FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'items'",
        [schema],
      );
      return row?.updated;
    })
    .toBeGreaterThanOrEqual(4 * ITEMS);
  const [row] = await connection.query<{ read: number }>(
    `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int AS read FROM pg_stat_user_tables
     WHERE schemaname = $1 AND relname IN ('items', 'requests')`,
    [schema],
  );
  expect((row?.read ?? 0) / (2 * ITEMS)).toBeLessThan(150);
});
