import { describe, expect, it } from "vitest";
import { bestOf, finalists, quickest } from "../../bench/contenders/at-best.ts";
import { atOnce, type Contender, interleaved, rate } from "../../bench/measure.ts";

function contender(name: string, told: string[]): Contender {
  return {
    names: [name, `${name} again`],
    async once() {
      told.push(name);
      return [told.length, -told.length];
    },
  };
}

describe("measuring in turns", () => {
  it("lets each contender run once a round, and forgets the warm-up", async () => {
    const told: string[] = [];
    const series = await interleaved([contender("a", told), contender("b", told)], 2);
    expect(told).toEqual(["a", "b", "a", "b", "a", "b"]);
    expect(series).toEqual([
      { name: "a", values: [3, 5] },
      { name: "a again", values: [-3, -5] },
      { name: "b", values: [4, 6] },
      { name: "b again", values: [-4, -6] },
    ]);
  });

  it("checks a batch outside the time that counts, and lets what was not done fail", async () => {
    const steps: string[] = [];
    const step = (name: string) => async () => void steps.push(name);
    const around = { before: step("before"), after: step("after") };
    const [items] = await rate("r", 1000, step("act"), around).once();
    expect(steps).toEqual(["before", "act", "after"]);
    expect(items).toBeGreaterThan(0);
    const wrong = { ...around, after: () => Promise.reject(new Error("item 3 was not done")) };
    await expect(rate("r", 1, step("act"), wrong).once()).rejects.toThrow("item 3");
  });

  it("does every item once, and never more at once than it may", async () => {
    const done: number[] = [];
    let [running, most] = [0, 0];
    await atOnce(20, 3, async (index) => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
      done.push(index);
    });
    expect(most).toBe(3);
    expect(done.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, index) => index));
  });

  it("begins nothing more after a failure, and tells it when all has ended", async () => {
    const begun: number[] = [];
    const failing = atOnce(100, 2, async (index) => {
      begun.push(index);
      await new Promise((resolve) => setImmediate(resolve));
      if (index === 2) throw new Error("the third");
    });
    await expect(failing).rejects.toThrow("the third");
    expect(begun.length).toBeLessThan(8);
  });
});

describe("a contender at its best", () => {
  it("is tried at every concurrency, and measured in full at as many of them as there may be", async () => {
    const most: number[] = [];
    let running = 0;
    const parallel = {
      name: "p",
      async run() {
        running += 1;
        most[most.length - 1] = Math.max(most.at(-1) ?? 0, running);
        await new Promise((resolve) => setImmediate(resolve));
        running -= 1;
      },
      around: () => ({ before: async () => void most.push(0), after: async () => {} }),
    };
    const chosen = await finalists([parallel], { trialItems: 8, finalists: 2 }, 4);
    expect(most).toEqual([1, 2, 4, 8]);
    expect(new Set(chosen.flatMap(({ names }) => names)).size).toBe(2);
    for (const { names } of chosen) expect(names[0]).toMatch(/^p, [1248] at once$/);
  });

  it("is where it gets most items done", () => {
    const tried = [1, 2, 4, 8].map((at, index) => ({ at, rate: [5, 9, 8, 2][index] ?? 0 }));
    expect(quickest(tried, 2).map(({ at }) => at)).toEqual([2, 4]);
  });

  it("counts with its quickest series, and keeps the order of the names", () => {
    const series = [
      { name: "a, 1 at once", values: [5, 6, 7] },
      { name: "a, 4 at once", values: [8, 9, 1] },
      { name: "b", values: [100] },
    ];
    expect(bestOf(series).map(({ name }) => name)).toEqual(["a, 4 at once", "b"]);
  });
});
