import { expect, it } from "vitest";
import { attempts, loadedFleet, settlementOf } from "./journal-fixture.ts";
import { fixture, journal, journalForEach, reopen } from "./journal-for-each.ts";

journalForEach();

const PRINTED = { stdout: `head\n${"x".repeat(80_000)}\ntail\n`, stderr: "warned\n" };

it("does not run an item again whose effect has begun: its next owner gets the intent, and settles it", async () => {
  const fleet = await loadedFleet(journal, 3);
  await journal[Symbol.asyncDispose]();
  const dead = await fixture.open("dead-1");
  // The one that loaded it lives; its fleet is given up.
  await fixture.giveTo("dead-1");
  const queue = await dead.queue(fleet);
  await queue.claim(2, attempts());
  const intent = { ...settlementOf(1, { run: "r2", output: PRINTED.stdout }, "c0ffee"), streams: PRINTED };
  expect(await queue.begin(1, 1, { ...settlementOf(1), streams: null })).toEqual({ ok: true });
  expect(await queue.begin(1, 1, intent)).toEqual({ ok: true });
  expect(await queue.requeue(1, 1, 0)).toMatchObject({ ok: false, reason: /has begun to change files/ });
  expect(await queue.counts()).toMatchObject({ running: 2, queued: 1 });
  await dead[Symbol.asyncDispose]();

  await reopen();
  const taken = await journal.takeOver(fleet);
  if (!taken.ok) throw new Error(taken.reason);
  expect(taken.running).toMatchObject([{ index: 0, run: "r1" }]);
  expect(taken.applying).toMatchObject([{ index: 1, key: "doc-1.pdf", attempt: 1, run: "r2" }]);
  const [applying] = taken.applying;
  const kept = applying?.intent;
  expect(kept?.result).toMatchObject({ run: "r2", status: "succeeded", fields: {} });
  expect(kept?.cacheKey).toBe(null);
  expect(kept?.streams?.stderr).toBe("warned\n");
  const next = await journal.queue(fleet);
  expect(await next.requeue(1, 1, 0)).toMatchObject({ ok: false });
  if (kept !== undefined) expect(await next.settle(1, 1, kept)).toEqual({ ok: true });
  expect(await next.settle(1, 1, settlementOf(1))).toMatchObject({ ok: false });
  const item = await journal.item(fleet, "doc-1.pdf");
  expect(item).toMatchObject({ state: "done", result: { status: "succeeded" } });
  // What was printed is cut once, and not again.
  expect(item?.streams.stdout.match(/characters left out/g)).toHaveLength(1);
  expect(item?.streams.stdout).toMatch(/^head\nx+\n… \(14\d\d\d characters left out\)\nx+\ntail\n$/);
  // The fleet, its tally, and of each item the item, its request, and what it said.
  expect(await fixture.rows()).toBe(1 + 1 + 3 + 3 + 1 + 1);
});

it("begins nothing for an attempt that was given up, or that has ended", async () => {
  const queue = await journal.queue(await loadedFleet(journal, 2));
  await queue.claim(2, attempts());
  await queue.requeue(0, 1, 0);
  expect(await queue.begin(0, 1, settlementOf(0))).toMatchObject({ ok: false, reason: /waits for a retry/ });
  await queue.claim(1, attempts());
  expect(await queue.begin(0, 1, settlementOf(0))).toMatchObject({ ok: false, reason: /attempt 2 is running/ });
  await queue.settle(1, 1, settlementOf(1));
  expect(await queue.begin(1, 1, settlementOf(1))).toMatchObject({ ok: false, reason: /attempt 1 is done/ });
});

it("does not forget a person's decision on an item whose run is not settled yet", async () => {
  const fleet = await loadedFleet(journal, 1);
  const queue = await journal.queue(fleet);
  await queue.claim(1, attempts());
  const decided = { fleet, item: 0, run: "r1", counts: { applied: 1 } };
  expect(await journal.reviewed([decided, { ...decided, run: "another" }])).toEqual([decided]);
  await queue.settle(0, 1, settlementOf(0, { status: "pending" }));
  expect(await journal.reviewed([decided])).toEqual([]);
  expect((await journal.item(fleet, "doc-0.pdf"))?.result?.status).toBe("applied");
});

it("takes nothing from a process that lost its fleet: what it began is the next owner's, and what it ran runs again", async () => {
  const fleet = await loadedFleet(journal, 4);
  await fixture.giveTo("dead-1");
  const late = await fixture.open("dead-1");
  const queue = await late.queue(fleet);
  await queue.claim(3, attempts());
  expect(await queue.begin(0, 1, settlementOf(0))).toEqual({ ok: true });
  expect(await queue.settle(2, 1, settlementOf(2, { status: "pending" }))).toEqual({ ok: true });

  // It was stopped for long, and continues now.
  const taken = await journal.takeOver(fleet);
  if (!taken.ok) throw new Error(taken.reason);
  const before = await fixture.rows();
  for (const index of [0, 2])
    for (const refused of [
      await queue.begin(index, 1, settlementOf(index)),
      await queue.settle(index, 1, settlementOf(index, { status: "failed" })),
      await queue.requeue(index, 1, 0),
    ])
      expect(refused).toMatchObject({ code: "taken", isInherited: true, reason: /took over the fleet/ });
  for (const refused of [
    await queue.begin(1, 1, settlementOf(1)),
    await queue.settle(1, 1, settlementOf(1)),
    await queue.requeue(1, 1, 0),
  ])
    expect(refused).toMatchObject({ ok: false, code: "taken", isInherited: false });
  expect(await queue.claim(1, attempts())).toMatchObject({ items: [], fleet: "taken" });
  expect(await fixture.rows()).toBe(before);

  const [item] = taken.running;
  if (item !== undefined) expect(await journal.fenced(fleet, item)).toEqual({ ok: true });
  const next = await journal.queue(fleet);
  const again = await next.claim(2, attempts());
  expect(again.items.map(({ request: { index }, attempt }) => [index, attempt])).toEqual([
    [3, 1],
    [1, 2],
  ]);
  expect(await queue.begin(1, 2, settlementOf(1))).toMatchObject({ code: "taken" });
  expect(await next.begin(1, 2, settlementOf(1))).toEqual({ ok: true });
  expect(await next.settle(0, 1, settlementOf(0))).toEqual({ ok: true });
  expect(await journal.item(fleet, "doc-0.pdf")).toMatchObject({ state: "done", result: { status: "succeeded" } });
  expect(await journal.item(fleet, "doc-2.pdf")).toMatchObject({ result: { status: "pending" } });
  await late[Symbol.asyncDispose]();
});
