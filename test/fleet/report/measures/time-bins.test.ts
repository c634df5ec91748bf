import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TimeBins } from "../../../../src/fleet/report/measures/statistics.ts";

const times = fc.integer({ min: 0, max: 2_000_000_000_000 });

describe("TimeBins", () => {
  it("loses nothing, whatever the order and the stretch of time, in a bounded number of bins", () => {
    const spans = fc.array(fc.tuple(times, fc.integer({ min: 0, max: 1_000_000 })), { minLength: 1, maxLength: 50 });
    fc.assert(
      fc.property(spans, fc.integer({ min: 1, max: 300 }), (given, maxBins) => {
        const bins = new TimeBins(2, maxBins);
        for (const [fromMs, ms] of given) {
          bins.addAt(0, fromMs);
          bins.addSpan(1, fromMs, fromMs + ms);
        }
        const all = [...bins];
        const total = (series: number): number => all.reduce((sum, { amounts }) => sum + (amounts[series] ?? 0), 0);
        expect(all.length).toBeLessThanOrEqual(Math.max(2, maxBins));
        expect(total(0)).toBe(given.length);
        expect(total(1)).toBeCloseTo(
          given.reduce((sum, [, ms]) => sum + ms, 0),
          0,
        );
        for (const [index, bin] of all.entries()) if (index > 0) expect(bin.fromMs).toBe(all[index - 1]?.toMs);
      }),
    );
  });

  it("puts amounts where they belong", () => {
    const bins = new TimeBins(1, 4);
    bins.addSpan(0, 1000, 1003);
    expect([...bins].map(({ fromMs, amounts }) => [fromMs, amounts[0]])).toEqual([
      [1000, 1],
      [1001, 1],
      [1002, 1],
      [1003, 0],
    ]);
    bins.addSpan(0, 1004, 1006);
    expect([...bins].map(({ fromMs, amounts }) => [fromMs, amounts[0]])).toEqual([
      [1000, 2],
      [1002, 1],
      [1004, 2],
      [1006, 0],
    ]);
  });

  it("has no bin where nothing came", () => {
    expect([...new TimeBins(1, 10)]).toEqual([]);
  });
});
