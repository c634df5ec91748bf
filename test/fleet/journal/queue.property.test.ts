import fc from "fast-check";
import { expect, it } from "vitest";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { attempts, journalFixture, loadedFleet, settlementOf } from "./journal-fixture.ts";
import { QueueModel } from "./queue-model.ts";
import { isSqlite } from "./store-kind.ts";

const COUNT = 6;

const index = fc.nat(COUNT - 1);
const attempt = fc.integer({ min: 1, max: 4 });
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("claim" as const), count: fc.integer({ min: 1, max: 4 }) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      ...{ do: fc.constant("settle" as const), index, attempt },
      status: fc.constantFrom("succeeded", "failed", "lost", "cached", "pending"),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("begin" as const), index, attempt }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("requeue" as const), index, attempt, wait: fc.nat(50) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(40) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("die" as const), fence: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("cancel" as const) }) },
);

it("does what a plain array would do, whatever is asked in whatever order, and whoever dies in between", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 60 }), async (steps) => {
      using fixture = journalFixture();
      const model = new QueueModel(COUNT);
      let now = 1000;
      let owners = 1;
      const open = (): Promise<FleetStore> => fixture.open(`dead-${owners}`, () => now);
      let journal = await open();
      const fleet = await loadedFleet(journal, COUNT);
      try {
        for (const step of steps) {
          const queue = await journal.queue(fleet);
          if (step.do === "claim") {
            const { items, nextAtMs, fleet: standing } = await queue.claim(step.count, attempts());
            const { claimed, next } = model.claim(step.count, now);
            expect(items.map((item) => [item.request.index, item.attempt])).toEqual(claimed);
            expect([nextAtMs, standing]).toEqual([next, model.fleet]);
          } else if (step.do === "settle") {
            const { ok } = await queue.settle(step.index, step.attempt, settlementOf(step.index, step));
            expect(ok).toBe(model.settle(step.index, step.attempt, step.status));
          } else if (step.do === "begin") {
            const { ok } = await queue.begin(step.index, step.attempt, settlementOf(step.index));
            expect(ok).toBe(model.begin(step.index, step.attempt));
          } else if (step.do === "requeue") {
            const { ok } = await queue.requeue(step.index, step.attempt, now + step.wait);
            expect(ok).toBe(model.requeue(step.index, step.attempt, now + step.wait));
          } else if (step.do === "wait") {
            now += step.ms;
          } else if (step.do === "cancel") {
            expect(await queue.cancelQueued("enough")).toBe(model.cancel());
          } else {
            await journal[Symbol.asyncDispose]();
            owners += 1;
            journal = await open();
            const resumed = await journal.takeOver(fleet);
            if (!resumed.ok) throw new Error(resumed.reason);
            const running = [...model.items.entries()].filter(([, { state }]) => state === "running");
            const those = (begun: boolean) =>
              running.filter(([, item]) => item.begun === begun).map(([at, item]) => [at, item.attempt]);
            expect(resumed.running.map((item) => [item.index, item.attempt])).toEqual(those(false));
            expect(resumed.applying.map((item) => [item.index, item.attempt])).toEqual(those(true));
            for (const item of step.fence ? resumed.running : []) {
              expect(await journal.fenced(fleet, item)).toEqual({ ok: true });
              model.requeue(item.index, item.attempt, 0);
            }
          }
          expect(await (await journal.queue(fleet)).counts()).toEqual(model.counts());
        }
        const done = [...model.items.entries()].filter(([, { state }]) => state === "done");
        expect((await Array.fromAsync(journal.results(fleet))).map((result) => [result.index, result.status])).toEqual(
          done.map(([at, { status }]) => [at, status]),
        );
      } finally {
        await journal[Symbol.asyncDispose]();
      }
    }),
    { numRuns: isSqlite ? 100 : 30 },
  );
});
