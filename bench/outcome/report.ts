import type { Series } from "../measure.ts";
import { percentile } from "./percentile.ts";

export type Unit = "ms" | "µs" | "items/s" | "MB/s" | "KB" | "a second" | "connections";

/** True for rates; for everything else less is better. */
export function moreIsBetter(unit: Unit): boolean {
  return unit.endsWith("/s");
}

export interface Row {
  readonly name: string;
  readonly p50: number;
  /** The slow end: for rates, what 99 of 100 rounds reach. With fewer than 100 rounds it is the worst one. */
  readonly p99: number;
  readonly rounds: number;
  /** This p50 divided by the p50 of the group's first row; null if the rows are different work. */
  readonly ratio: number | null;
}

/** Rows that were measured in turns. The others are compared with the first row. */
export interface Group {
  readonly name: string;
  readonly title: string;
  readonly unit: Unit;
  readonly rows: readonly Row[];
}

/** A goal of the project and the measured value. A missed target is no failure: machines are shared and noisy. */
export interface Target {
  readonly what: string;
  /** Null if it was not measured. Of several passes, the median. */
  readonly measured: number | null;
  /** What each pass of several measured. */
  readonly passes?: readonly number[];
  readonly bound: "at least" | "at most";
  readonly wanted: number;
}

export interface Machine {
  readonly cores: number;
  readonly memoryBytes: number;
  /** As the kernel names it; empty if it does not. */
  readonly processor: string;
  readonly kernel: string;
  readonly node: string;
  readonly engine: string;
  /** Null if runc is not installed. */
  readonly runc: string | null;
  /** The load average over one minute, before and after. */
  readonly loadBefore: number;
  readonly loadAfter: number;
}

/** One whole run of the bench, as in its JSON. */
export interface BenchReport {
  readonly version: 2;
  readonly level: string;
  /** The command that made it, as it was typed. */
  readonly command: string;
  /** ISO 8601, UTC. */
  readonly startedAt: string;
  readonly durationMs: number;
  readonly machine: Machine;
  readonly groups: readonly Group[];
  readonly targets: readonly Target[];
  /** What was not measured and why, and what a number does not include. */
  readonly notes: readonly string[];
}

/** `work`: `different` if the rows cannot be compared. */
export function groupOf(
  name: string,
  title: string,
  unit: Unit,
  series: readonly Series[],
  work: "same" | "different" = "same",
): Group {
  const slow = moreIsBetter(unit) ? 0.01 : 0.99;
  const first = percentile(series[0]?.values ?? [], 0.5);
  const rows = series.map(({ name, values }): Row => {
    const p50 = percentile(values, 0.5);
    return {
      name,
      p50,
      p99: percentile(values, slow),
      rounds: values.length,
      ratio: work === "same" ? p50 / first : null,
    };
  });
  return { name, title, unit, rows };
}

/** The p50 of a row by its group and its name, at any concurrency; null if it was not measured. */
export function medianOf(groups: readonly Group[], group: string, row: string): number | null {
  const isRow = (name: string): boolean => name === row || nameAtAnyConcurrency(name) === row;
  const found = groups.find(({ name }) => name === group)?.rows.find(({ name }) => isRow(name));
  return found === undefined || Number.isNaN(found.p50) ? null : found.p50;
}

/** The name of a contender with many items ends with the concurrency at which it was quickest: the name without it. */
export function nameAtAnyConcurrency(name: string): string {
  return name.replace(/, \d+ at once$/, "");
}
