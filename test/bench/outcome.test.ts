import { readFile } from "node:fs/promises";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { amongItems, sideBySide } from "../../bench/outcome/names.ts";
import { numberText } from "../../bench/outcome/number-text.ts";
import { percentile } from "../../bench/outcome/percentile.ts";
import { medianGroups, medianTargets } from "../../bench/outcome/repeated.ts";
import { groupOf, medianOf } from "../../bench/outcome/report.ts";
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
    expect(tablesOf({ ...smallReport(), groups: [group] })).not.toMatch(/×/);
  });

  it("answers null for a row that was not measured", () => {
    const group = groupOf("g", "G", "ms", [{ name: "a, 4 at once", values: [1] }]);
    expect(medianOf([group], "g", "a")).toBe(1);
    expect(medianOf([group], "g", "b")).toBeNull();
    expect(medianOf([], "g", "a")).toBeNull();
  });
});

/** What is measured of each target: those of a group that has these rows, in the order of the rows. */
function measuredOf(name: string, rows: Readonly<Record<string, number>>) {
  const series = Object.entries(rows).map(([row, value]) => ({ name: row, values: [value] }));
  const targets = targetsOf([groupOf(name, "", "ms", series)]);
  return Object.fromEntries(targets.flatMap(({ what, measured }) => (measured === null ? [] : [[what, measured]])));
}

describe("targets", () => {
  it("are met from their bound on, missed beyond it, and neither where nothing was measured", () => {
    const target = { what: "w", wanted: 0.2 };
    expect(isMet({ ...target, bound: "at most", measured: 0.2 })).toBe(true);
    expect(isMet({ ...target, bound: "at most", measured: 0.21 })).toBe(false);
    expect(isMet({ ...target, bound: "at least", measured: 0.2 })).toBe(true);
    expect(isMet({ ...target, bound: "at least", measured: 0.19 })).toBe(false);
    expect(isMet({ ...target, bound: "at least", measured: null })).toBeNull();
  });

  it("compare the rows that they name, on the driver that they name, and no row that is called nearly the same", () => {
    const runs = {
      "docker run": 100,
      "sandbox-runtime": 20,
      "Corral on the Engine: cold run, library": 70,
      "Corral on runc: cold run, library": 30,
      "Corral on the Engine: cold run, command line": 110,
      "Corral on runc: cold run, command line": 90,
      "Corral on the Engine: warm claim to first byte": 7,
      "Corral on runc: warm claim to first byte": 2,
      "Corral on runc: warm claim to result": 8,
    };
    expect(measuredOf("runs", runs)).toEqual({
      "cold run, library, on the Engine / docker run": 0.7,
      "cold run, library, on runc / docker run": 0.3,
      "cold run, library, on runc / sandbox-runtime": 1.5,
      "cold run, command line, on the Engine / docker run": 1.1,
      "cold run, command line, on runc / docker run": 0.9,
      "warm claim to first byte, on runc / docker run": 0.02,
      "warm claim to result, on runc / docker run": 0.08,
    });
    const exec = {
      "docker exec": 9,
      "Engine API: exec": 20,
      "Corral on runc: exec in a session": 4,
      "Corral on the Engine: exec in a session": 5,
    };
    expect(measuredOf("exec", exec)).toEqual({ "exec in a session, on the Engine / the Engine's exec": 0.25 });
    const rates = {
      "docker run, 2 at once": 10,
      "runc run, 4 at once": 50,
      "Corral on the Engine: fleet, fresh cells": 1,
      "Corral on runc: fleet, fresh cells": 40,
      "Corral on the Engine: fleet, scrubbed cells": 500,
      "Corral on runc: fleet, scrubbed cells": 600,
    };
    expect(measuredOf("rates", rates)).toEqual({
      "fresh fleet, on runc / docker run at its best": 4,
      "fresh fleet, on runc / bare runc run at its best": 0.8,
      "scrubbed fleet, on the Engine / docker run at its best": 50,
    });
    const growth = [10, 1000, 10_000].map(
      (items) => [`Corral on the Engine: ${amongItems(items)}`, items + 1] as const,
    );
    expect(measuredOf("growth", Object.fromEntries(growth))).toEqual({
      "an item among 10,000, on the Engine / among 1,000": 10_001 / 1001,
    });
  });

  it("are those of the table in docs/bench.md", async () => {
    const page = await readFile(new URL("../../docs/bench.md", import.meta.url), "utf8");
    const table = page.slice(page.indexOf("| work ")).split("\n\n", 1)[0] ?? "";
    const rows = [...table.matchAll(/^\| (.+?) +\| (at (?:most|least) [\d.]+) +\|$/gm)];
    const documented = rows.map(([, what = "", wanted]) => [what.replaceAll("`", ""), wanted]);
    expect(documented).toEqual(targetsOf([]).map(({ what, bound, wanted }) => [what, `${bound} ${wanted}`]));
  });

  it("of the network compare a tunnel with the host's own network", () => {
    const rows = { "direct: the host's own network": 4, "CONNECT proxy in a sidecar": 9, "Corral: tunnel": 6 };
    const all = ["connect", "request", "download"].map((group) => Object.values(measuredOf(group, rows)));
    expect(all).toEqual([[2], [2], [1.5]]);
    const starts = { "Corral: no network": 50, "Corral: an allow list of 1 host": 90 };
    expect(Object.values(measuredOf("start", starts))).toEqual([40]);
  });
});

describe("targets of machines", () => {
  it("compare PostgreSQL with SQLite by the time of an item, and large fleets with small ones", () => {
    expect(measuredOf("machines-fresh", { SQLite: 42, PostgreSQL: 40 })).toEqual({
      "an item with a fresh cell, PostgreSQL / SQLite": 1.05,
    });
    expect(measuredOf("machines-scrubbed", { SQLite: 500, PostgreSQL: 400 })).toEqual({
      "a scrubbed item, PostgreSQL / SQLite": 1.25,
    });
    const widths = { "SQLite, width 64": 9, "PostgreSQL, width 64": 4000, "PostgreSQL, width 1": 300 };
    expect(measuredOf("queue", widths)).toEqual({ "empty items a second in PostgreSQL": 4000 });
    const growth = { "PostgreSQL: an item among 1,000": 100, "PostgreSQL: an item among 100,000": 120 };
    expect(measuredOf("queue-growth", growth)).toEqual({
      "an empty item among 100,000 / among 1,000, PostgreSQL": 1.2,
    });
  });

  it("have rows for each width, which several passes do not mix", () => {
    const pass = (small: number, large: number) => [
      groupOf("queue", "Q", "items/s", [
        { name: sideBySide("PostgreSQL", 1), values: [small] },
        { name: sideBySide("PostgreSQL", 64), values: [large] },
      ]),
    ];
    const [group] = medianGroups([pass(300, 4000), pass(310, 4100), pass(320, 4200)]);
    expect(group?.rows.map(({ p50 }) => p50)).toEqual([310, 4100]);
  });
});

describe("several passes", () => {
  it("show of each row the one with the median p50, at whatever concurrency it was quickest, and compare anew", () => {
    const pass = (at: number, first: number, second: number) => [
      groupOf("rates", "R", "items/s", [
        { name: `a, ${at} at once`, values: [first] },
        { name: "b", values: [second] },
      ]),
    ];
    const [group] = medianGroups([pass(2, 10, 30), pass(4, 20, 50), pass(8, 40, 10)]);
    expect(group?.rows.map(({ name, p50, ratio }) => [name, p50, ratio])).toEqual([
      ["a, 4 at once", 20, 1],
      ["b", 30, 1.5],
    ]);
  });

  it("judge a target by the median of the ratios of each pass, and show the lowest and the highest", () => {
    const target = { what: "t", bound: "at most", wanted: 1 } as const;
    const passes = [0.9, null, 1.5, 0.4].map((measured) => [{ ...target, measured }]);
    const targets = medianTargets(passes);
    expect(targets).toEqual([{ ...target, measured: 0.9, passes: [0.9, 1.5, 0.4] }]);
    expect(tablesOf({ ...smallReport(), targets })).toMatch(/\| t +\| 0\.9 \(0\.4 to 1\.5\) \| +at most 1 \| +met \|/);
    expect(medianTargets([[{ ...target, measured: null }]])).toEqual([{ ...target, measured: null }]);
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

  it("is tables in Markdown whose columns stand under each other, with the machine, the targets and the notes", () => {
    const text = tablesOf(smallReport());
    expect(text).toContain(
      "2 cores (A & B), 8 GB, Linux 6.1.0, Docker Engine 20.10.24, runc 1.1.5, Node 24.0.0; load 0.3 before, 3.0 after",
    );
    expect(text).toContain("| docker run                               |    210 | 400 |      ×1 |      3 |");
    expect(text).toMatch(/target +\| +measured/);
    expect(text).toMatch(/scrubbed fleet, on the Engine \/ docker run at its best +\| +120 \| +at least 60 \| +met \|/);
    expect(text).toMatch(/warm claim to result, on runc \/ docker run +\| +0\.238 \| +at most 0\.08 \| missed \|/);
    expect(text).toContain("- a peer was not measured");
    for (const table of text.split("\n\n").filter((part) => part.startsWith("|")))
      expect(new Set(table.split("\n").map((line) => line.length)).size).toBe(1);
  });
});
