import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { logTimeTicks, niceStep, ticksUpTo, timeTicks } from "../../../../src/fleet/report/measures/statistics.ts";

describe("ticks", () => {
  it("reach what they measure, in a bounded number of nice steps", () => {
    fc.assert(
      fc.property(fc.double({ min: 1e-6, max: 1e12, noNaN: true }), (max) => {
        const ticks = ticksUpTo(max, 4);
        expect(ticks[0]).toBe(0);
        expect(ticks.at(-1)).toBeGreaterThanOrEqual(max * (1 - 1e-6));
        expect(ticks.length).toBeLessThanOrEqual(9);
        expect(niceStep(max)).toBeGreaterThanOrEqual(max * (1 - 1e-6));
      }),
    );
  });

  it("of time stay within, and are steps of a clock", () => {
    expect(timeTicks(0, 60_000, 8)).toEqual([0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
    expect(logTimeTicks(10, 500)).toEqual([10, 20, 50, 100, 200, 500]);
    expect(logTimeTicks(1, 10_000)).toEqual([1, 10, 100, 1000, 10_000]);
    expect(timeTicks(1160, 1240, 6)).toEqual([1160, 1180, 1200, 1220, 1240]);
    fc.assert(
      fc.property(fc.double({ min: 1e-3, max: 1e13, noNaN: true }), (span) => {
        expect(timeTicks(0, span).length).toBeLessThanOrEqual(17);
      }),
    );
  });
});
