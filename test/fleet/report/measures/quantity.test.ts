import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { countText, durationText, rateText, roughBytesText } from "../../../../src/fleet/report/measures/gathered.ts";
import { logTimeTicks, niceStep, ticksUpTo, timeTicks } from "../../../../src/fleet/report/measures/statistics.ts";

describe("quantities for people", () => {
  it.each([
    [0, "0s"],
    [0.25, "0.3ms"],
    [12.4, "12ms"],
    [999.7, "1s"],
    [1500, "1.5s"],
    [59_949, "59.9s"],
    [59_960, "1m"],
    [123_000, "2m 3s"],
    [3_599_600, "1h"],
    [7_500_000, "2h 5m"],
    [180_000_000, "2d 2h"],
  ])("tells %d milliseconds as %s", (ms, text) => {
    expect(durationText(ms)).toBe(text);
  });

  it("groups digits, and chooses units that are easy to think of", () => {
    expect([countText(0), countText(999), countText(1000), countText(1_234_567)]).toEqual([
      "0",
      "999",
      "1,000",
      "1,234,567",
    ]);
    expect([rateText(0.5), rateText(3.44), rateText(812.3), rateText(0)]).toEqual([
      "30/min",
      "3.4/s",
      "812/s",
      "0/min",
    ]);
    expect([roughBytesText(12), roughBytesText(1.5 * 1024 ** 2), roughBytesText(143 * 1024 ** 2)]).toEqual([
      "12 bytes",
      "1.5 MiB",
      "143 MiB",
    ]);
  });
});

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
