import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  DurationStatistics,
  histogramOf,
  lanesOf,
  logTimeTicks,
  niceStep,
  TimeBins,
  ticksUpTo,
  timeTicks,
} from "../../../../src/fleet/report/measures/statistics.ts";

function statisticsOf(durations: Iterable<number>): DurationStatistics {
  const statistics = new DurationStatistics();
  for (const ms of durations) statistics.add(ms);
  return statistics;
}

const durations = fc.array(fc.double({ min: 0, max: 1e9, noNaN: true }), { minLength: 1, maxLength: 200 });

describe("DurationStatistics", () => {
  it("tells quantiles that are of the durations themselves, at the right rank", () => {
    fc.assert(
      fc.property(durations, fc.double({ min: 0, max: 1, noNaN: true }), (given, share) => {
        const quantile = statisticsOf(given).quantile(share) ?? Number.NaN;
        expect(given).toContain(quantile);
        const notLonger = given.filter((ms) => ms <= quantile).length;
        const shorter = given.filter((ms) => ms < quantile).length;
        expect(notLonger).toBeGreaterThanOrEqual(share * given.length);
        if (shorter > 0) expect(shorter).toBeLessThan(share * given.length);
      }),
    );
  });

  it("is within 1 % for a million durations, and keeps few numbers", () => {
    const statistics = new DurationStatistics();
    // Spread over six powers of ten.
    const durationOf = (index: number): number => 10 ** ((index / 1_000_000) * 6);
    for (let index = 0; index < 1_000_000; index += 1) statistics.add(durationOf((index * 7919) % 1_000_000));
    for (const share of [0.01, 0.5, 0.9, 0.99]) {
      expect((statistics.quantile(share) ?? 0) / durationOf(share * 1_000_000)).toBeCloseTo(1, 2);
    }
    expect([...statistics.values()].length).toBeLessThan(3000);
    expect(statistics.count).toBe(1_000_000);
  });

  it("knows nothing of nothing, and takes what is no duration as 0", () => {
    const none = new DurationStatistics();
    expect([none.min, none.max, none.mean, none.quantile(0.5)]).toEqual([null, null, null, null]);
    expect(histogramOf(none)).toBeNull();
    const odd = statisticsOf([Number.NaN, -5, Number.POSITIVE_INFINITY]);
    expect([odd.min, odd.quantile(0.5), odd.max]).toEqual([0, 0, 1e12]);
  });
});

describe("histogramOf", () => {
  it("counts each duration once, in bins without gaps, few enough to draw", () => {
    fc.assert(
      fc.property(durations, (given) => {
        const bins = histogramOf(statisticsOf(given))?.bins ?? [];
        expect(bins.reduce((sum, { count }) => sum + count, 0)).toBe(given.length);
        expect(bins.length).toBeLessThanOrEqual(60);
        for (const [index, bin] of bins.entries()) {
          expect(bin.toMs).toBeGreaterThan(bin.fromMs);
          if (index > 0) expect(bin.fromMs).toBe(bins[index - 1]?.toMs);
        }
      }),
    );
  });

  it("puts each into the bin that it belongs to", () => {
    const histogram = histogramOf(statisticsOf([100, 110, 250, 251, 252]));
    expect(histogram?.scale).toBe("linear");
    const binOf = (ms: number): number => histogram?.bins.find((bin) => bin.fromMs <= ms && ms < bin.toMs)?.count ?? 0;
    expect([binOf(100), binOf(110), binOf(180), binOf(251)]).toEqual([1, 1, 0, 3]);
  });

  it("has a scale of powers where a few took much longer than most", () => {
    const skewed = histogramOf(statisticsOf([...Array.from({ length: 99 }, () => 10), 30_000]));
    expect(skewed?.scale).toBe("log");
    expect(skewed?.bins.filter(({ count }) => count > 0).map(({ count }) => count)).toEqual([99, 1]);
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

const stretches = fc.array(
  fc
    .tuple(fc.integer({ min: 0, max: 100 }), fc.integer({ min: 1, max: 30 }))
    .map(([startMs, ms]) => ({ startMs, endMs: startMs + ms })),
  { maxLength: 60 },
);

describe("lanesOf", () => {
  it("lets no two overlap in a lane, and makes as many lanes as ever ran at once", () => {
    fc.assert(
      fc.property(stretches, (given) => {
        const lanes = lanesOf(given, 1000) ?? [];
        for (const [index, one] of given.entries()) {
          for (const [other, two] of given.entries()) {
            if (other <= index || lanes[other] !== lanes[index]) continue;
            expect(one.endMs <= two.startMs || two.endMs <= one.startMs).toBe(true);
          }
        }
        const atOnce = given.map(
          ({ startMs }) => given.filter((other) => other.startMs <= startMs && startMs < other.endMs).length,
        );
        expect(Math.max(0, ...lanes.map((lane) => lane + 1))).toBe(Math.max(0, ...atOnce));
      }),
    );
  });

  it("is nothing where there would be too many lanes", () => {
    const together = Array.from({ length: 5 }, () => ({ startMs: 0, endMs: 10 }));
    expect(lanesOf(together, 5)).toEqual([0, 1, 2, 3, 4]);
    expect(lanesOf(together, 4)).toBeNull();
  });
});

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
