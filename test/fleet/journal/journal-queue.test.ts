import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { attempts, type JournalFixture, journalFixture, loadedFleet, settlementOf } from "./journal-fixture.ts";
import { isSqlite } from "./store-kind.ts";

let fixture: JournalFixture;
let journal: FleetStore;
let nowMs = 1000;

beforeEach(async () => {
  nowMs = 1000;
  fixture = journalFixture();
  journal = await fixture.open("me", () => nowMs);
});

afterEach(async () => {
  await journal[Symbol.asyncDispose]();
  fixture[Symbol.dispose]();
});

async function queueOf(count: number): Promise<FleetQueue> {
  return await journal.queue(await loadedFleet(journal, count));
}

async function claimed(queue: FleetQueue, count: number): Promise<string[]> {
  const { items } = await queue.claim(count, attempts());
  return items.map(({ request, attempt }) => `${request.index}.${attempt}`);
}

it("gives items out once each, in their order, with an attempt of their own", async () => {
  const queue = await queueOf(3);
  const { items, nextAtMs, fleet } = await queue.claim(2, attempts());
  expect(items).toMatchObject([
    { request: { index: 0, key: "doc-0.pdf", input: { lang: "en" } }, attempt: 1, earlier: 0, run: "r1", cell: null },
    { request: { index: 1 }, attempt: 1, run: "r2" },
  ]);
  expect([nextAtMs, fleet]).toEqual([null, "running"]);
  expect(await claimed(queue, 5)).toEqual(["2.1"]);
  expect(await claimed(queue, 5)).toEqual([]);
  expect(await queue.counts()).toEqual({ total: 3, queued: 0, running: 3, done: 0, failed: 0, pending: 0 });
});

it("gives an item that is tried again after the fresh ones, when it is due, and says when that is", async () => {
  const queue = await queueOf(4);
  await claimed(queue, 2);
  expect(await queue.requeue(0, 1, 5000)).toEqual({ ok: true });
  expect(await queue.requeue(1, 1, 3000)).toEqual({ ok: true });
  expect(await queue.claim(1, attempts())).toMatchObject({ items: [{ request: { index: 2 } }], nextAtMs: 3000 });
  expect(await claimed(queue, 5)).toEqual(["3.1"]);
  expect(await queue.claim(5, attempts())).toEqual({ items: [], nextAtMs: 3000, elsewhere: 0, fleet: "running" });
  nowMs = 3000;
  expect(await claimed(queue, 5)).toEqual(["1.2"]);
  expect((await queue.claim(5, attempts())).nextAtMs).toBe(5000);
  nowMs = 6000;
  expect(await claimed(queue, 5)).toEqual(["0.2"]);
});

it("counts attempts that failed for retries, and none that was withdrawn or whose process died", async () => {
  const queue = await queueOf(2);
  await queue.claim(2, attempts());
  await queue.requeue(0, 1, 0, "withdrawn");
  await queue.requeue(1, 1, 0);
  const again = [
    { request: { index: 0 }, attempt: 2, earlier: 1 },
    { request: { index: 1 }, attempt: 2, earlier: 0 },
  ];
  expect((await queue.claim(2, attempts())).items).toMatchObject(again);
});

it("refuses what a fenced attempt says, and tells which one counts", async () => {
  const queue = await queueOf(1);
  await claimed(queue, 1);
  await queue.requeue(0, 1, 0);
  const waiting = {
    ok: false,
    code: "fenced",
    reason: "attempt 1 of item 0 no longer counts: the item waits for a retry",
  };
  expect(await queue.settle(0, 1, settlementOf(0, { output: "late" }))).toEqual(waiting);
  expect(await queue.requeue(0, 1, 0)).toEqual(waiting);
  expect(await claimed(queue, 1)).toEqual(["0.2"]);
  expect(await queue.settle(0, 1, settlementOf(0))).toMatchObject({
    reason: expect.stringContaining("attempt 2 is running"),
  });
  expect(await queue.settle(0, 2, settlementOf(0, { output: "right" }))).toEqual({ ok: true });
  expect(await queue.settle(0, 2, settlementOf(0, { output: "again" }))).toMatchObject({ code: "fenced" });
  expect(await queue.counts()).toEqual({ total: 1, queued: 0, running: 0, done: 1, failed: 0, pending: 0 });
  expect((await journal.list())[0]?.counts.done).toBe(1);
  expect(
    (await Array.fromAsync(journal.results((await journal.list())[0]?.id ?? ""))).map(({ output }) => output),
  ).toEqual(["right"]);
});

it("keeps to the order in which it was asked, within one turn as well", async () => {
  const queue = await queueOf(2);
  await claimed(queue, 1);
  const [requeued, late, next] = await Promise.all([
    queue.requeue(0, 1, 0),
    queue.settle(0, 1, settlementOf(0)),
    queue.claim(2, attempts()),
  ]);
  expect([requeued.ok, late.ok]).toEqual([true, false]);
  expect(next.items.map(({ request, attempt }) => [request.index, attempt])).toEqual([
    [1, 1],
    [0, 2],
  ]);
});

it("records what others asked for in the same turn where one asks for what cannot be", async () => {
  const queue = await queueOf(3);
  await claimed(queue, 2);
  const told = await Promise.allSettled([
    queue.settle(0, 1, settlementOf(0)),
    queue.settle(77, 1, settlementOf(77)),
    queue.settle(1, 1, settlementOf(1)),
  ]);
  expect(told.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(await queue.counts()).toMatchObject({ done: 2, running: 0, queued: 1 });
});

it.runIf(isSqlite)(
  "tells all of them where the database takes nothing, and takes them again when it does",
  async () => {
    const queue = await queueOf(2);
    await claimed(queue, 2);
    using db = new DatabaseSync(fixture.path);
    db.exec("CREATE TRIGGER full BEFORE INSERT ON results BEGIN SELECT raise(ROLLBACK, 'the disk is full'); END");
    const both = () => Promise.allSettled([0, 1].map((index) => queue.settle(index, 1, settlementOf(index))));
    for (const told of await both()) expect(told).toMatchObject({ reason: { message: "the disk is full" } });
    expect(await queue.counts()).toMatchObject({ running: 2, done: 0 });
    db.exec("DROP TRIGGER full");
    for (const told of await both()) expect(told).toMatchObject({ value: { ok: true } });
  },
);

it("cancels what waits and leaves what runs to its claimer", async () => {
  const queue = await queueOf(12_000);
  await claimed(queue, 2);
  await queue.requeue(1, 1, 9000);
  expect(await queue.cancelQueued("too many failures")).toBe(11_999);
  expect(await queue.claim(1, attempts())).toEqual({ items: [], nextAtMs: null, elsewhere: 0, fleet: "cancelled" });
  expect(await queue.counts()).toEqual({ total: 12_000, queued: 0, running: 1, done: 11_999, failed: 0, pending: 0 });
  expect(await queue.cancelQueued("again")).toBe(0);
  expect(await queue.settle(0, 1, settlementOf(0))).toEqual({ ok: true });
  const { id } = (await journal.list())[0] ?? { id: "" };
  expect(await journal.end(id)).toBe("cancelled");
  const [first, second, third] = await Array.fromAsync(journal.results(id));
  expect(first?.status).toBe("succeeded");
  expect(second).toMatchObject({ index: 1, status: "cancelled", run: null, attempt: 1, startedAt: null });
  expect(third).toMatchObject({ attempt: 0, error: { code: "cancelled", message: "too many failures" } });
});

it("cancels nothing of a fleet that has come to its end", async () => {
  const queue = await queueOf(1);
  await claimed(queue, 1);
  await queue.settle(0, 1, settlementOf(0));
  const { id } = (await journal.list())[0] ?? { id: "" };
  await journal.end(id);
  expect(await queue.cancelQueued("too late")).toBe(0);
  expect(await journal.find(id)).toMatchObject({ state: "done", why: null });
});

it.runIf(isSqlite)("looks at no more rows for an item however many there are", async () => {
  const queue = await queueOf(10);
  // Statements are prepared when they are used first, so these are all that an item needs.
  using prepare = vi.spyOn(DatabaseSync.prototype, "prepare");
  await claimed(queue, 2);
  await queue.requeue(0, 1, 0);
  await queue.begin(1, 1, settlementOf(1));
  await queue.settle(1, 1, settlementOf(1));
  await queue.settle(1, 1, settlementOf(1));
  await queue.counts();
  await journal.succeededBefore("0".repeat(64));
  const texts = prepare.mock.calls.map(([sql]) => sql).filter((sql) => /items/.test(sql));
  expect(texts.length).toBeGreaterThan(5);
  using db = new DatabaseSync(fixture.path);
  for (const sql of texts) {
    const steps = db
      .prepare(`EXPLAIN QUERY PLAN ${sql}`)
      .all()
      .map(({ detail }) => String(detail));
    // The subquery of the cache sorts what has the same key.
    expect(
      steps.filter((step) => step.startsWith("SCAN")),
      sql,
    ).toEqual([]);
    if (!sql.includes("cache_key, 1, 16"))
      expect(
        steps.filter((step) => step.includes("TEMP B-TREE")),
        sql,
      ).toEqual([]);
  }
});
