import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { chartOf } from "../../bench/outcome/chart.ts";
import { numberText } from "../../bench/outcome/number-text.ts";
import { percentile } from "../../bench/outcome/percentile.ts";
import { type Group, groupOf, medianOf } from "../../bench/outcome/report.ts";
import { tablesOf } from "../../bench/outcome/table.ts";
import { isMet, targetsOf } from "../../bench/outcome/targets.ts";
import { smallReport } from "./report-fixture.ts";

describe("a percentile", () => {
  it("is a value that was measured, with at least that part of all at or below it, and no smaller one has", () => {
    const values = fc.array(fc.double({ noNaN: true, noDefaultInfinity: true }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 100 }), (measured, percent) => {
        const found = percentile(measured, percent / 100);
        const atMost = (value: number): number => measured.filter((other) => other <= value).length;
        expect(measured).toContain(found);
        expect(atMost(found) * 100).toBeGreaterThanOrEqual(percent * measured.length);
        const below = measured.filter((value) => value < found);
        expect(below.length * 100).toBeLessThan(percent * measured.length);
      }),
    );
  });

  it("of nothing is no number", () => {
    expect(percentile([], 0.5)).toBeNaN();
  });
});

describe("a group", () => {
  it("compares with its first row, and takes the slow end for the p99: of times the longest, of rates the lowest", () => {
    const series = [
      { name: "first", values: [10, 30, 20] },
      { name: "second", values: [5, 4, 9] },
    ];
    expect(groupOf("g", "G", "ms", series).rows).toEqual([
      { name: "first", p50: 20, p99: 30, rounds: 3, ratio: 1 },
      { name: "second", p50: 5, p99: 9, rounds: 3, ratio: 0.25 },
    ]);
    expect(groupOf("g", "G", "items/s", series).rows.map(({ p99 }) => p99)).toEqual([10, 4]);
    expect(groupOf("g", "G", "MB/s", series).rows.map(({ p99 }) => p99)).toEqual([10, 4]);
  });

  it("compares nothing where its rows are different work", () => {
    const series = [1, 2].map((value) => ({ name: `row ${value}`, values: [value] }));
    const group = groupOf("g", "G", "KB", series, "different");
    expect(group.rows.map(({ ratio }) => ratio)).toEqual([null, null]);
    expect(chartOf({ ...smallReport(), groups: [group] })).not.toMatch(/×/);
    expect(tablesOf({ ...smallReport(), groups: [group] })).not.toMatch(/×/);
  });

  it("answers null for a row that was not measured", () => {
    const group = groupOf("g", "G", "ms", [{ name: "a, 4 at once", values: [1] }]);
    expect(medianOf([group], "g", "a")).toBe(1);
    expect(medianOf([group], "g", "b")).toBeNull();
    expect(medianOf([], "g", "a")).toBeNull();
  });
});

describe("targets", () => {
  it("are met from their bound on, missed beyond it, and neither where nothing was measured", () => {
    const target = { what: "w", wanted: 0.2 };
    expect(isMet({ ...target, bound: "at most", measured: 0.2 })).toBe(true);
    expect(isMet({ ...target, bound: "at most", measured: 0.21 })).toBe(false);
    expect(isMet({ ...target, bound: "at least", measured: 0.2 })).toBe(true);
    expect(isMet({ ...target, bound: "at least", measured: 0.19 })).toBe(false);
    expect(isMet({ ...target, bound: "at least", measured: null })).toBeNull();
  });

  it("come of the rows that they speak of, and of no other that is called nearly the same", () => {
    const measured = targetsOf(smallReport().groups).map(({ measured }) => measured);
    expect(measured).toEqual([null, null, null, 120, 5 / 210, 50 / 210, null, null, null, null, null]);
    const growth = groupOf("growth", "", "ms", [
      { name: "10 items", values: [9] },
      { name: "1000 items", values: [4] },
      { name: "10000 items", values: [5] },
    ]);
    expect(targetsOf([growth])[6]?.measured).toBe(1.25);
    const rates = groupOf("rates", "", "items/s", [
      { name: "Engine API, network disabled, 8 at once", values: [20] },
      { name: "Engine API, 4 at once", values: [8] },
      { name: "Corral: fleet, fresh cells", values: [16] },
    ]);
    expect(
      targetsOf([rates])
        .map((target) => target.measured)
        .slice(0, 3),
    ).toEqual([2, 0.8, null]);
    const network = (name: string, tunnel: number): Group =>
      groupOf(name, "", "ms", [
        { name: "direct: the host's own network", values: [4] },
        { name: "CONNECT proxy in a sidecar", values: [9] },
        { name: "Corral: tunnel", values: [tunnel] },
      ]);
    const tunnels = targetsOf([network("connect", 6), network("request", 4.5), network("download", 3)]);
    expect(tunnels.map((target) => target.measured).slice(7)).toEqual([2, 0.5, 0.75, null]);
  });
});

describe("what is printed", () => {
  it("shows three digits that count, and no power of ten", () => {
    expect([0.04213, 1, 12.34, 999.4, 4560.2, Number.NaN].map(numberText)).toEqual([
      "0.0421",
      "1",
      "12.3",
      "999",
      "4,560",
      "–",
    ]);
  });

  it("is tables in Markdown whose columns stand under each other, with the load, the targets and the notes", () => {
    const text = tablesOf(smallReport());
    expect(text).toContain("load 0.3 before, 3.0 after");
    expect(text).toContain("| docker run                       |    210 | 400 |      ×1 |      3 |");
    expect(text).toMatch(/scrubbed fleet's rate over docker run's best +\| +120 \| +at least 30 \| +met \|/);
    expect(text).toMatch(/warm claim's result over a docker run +\| +0\.238 \| +at most 0\.2 \| missed \|/);
    expect(text).toContain("- a peer was not measured");
    for (const table of text.split("\n\n").filter((part) => part.startsWith("|")))
      expect(new Set(table.split("\n").map((line) => line.length)).size).toBe(1);
  });

  it("is one chart with a bar for each row, in which no name is markup", () => {
    const svg = chartOf(smallReport());
    expect(svg.match(/<rect x=/g)).toHaveLength(5);
    expect(svg).toContain("Many &lt;items&gt;");
    expect(svg).not.toContain("<items>");
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
  });

  it("is drawn also of rows that have no number", () => {
    const groups = [groupOf("g", "G", "ms", [{ name: "a", values: [] }])];
    expect(chartOf({ ...smallReport(), groups })).not.toMatch(/NaN|Infinity/);
  });
});
