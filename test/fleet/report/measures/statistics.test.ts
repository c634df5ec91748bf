import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DurationStatistics, histogramOf } from "../../../../src/fleet/report/measures/statistics.ts";

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
