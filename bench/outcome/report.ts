import type { Series } from "../measure.ts";
import { percentile } from "./percentile.ts";

/** Of `items/s` more is better, of everything else less. */
export type Unit = "ms" | "µs" | "items/s" | "KB";

export interface Row {
  readonly name: string;
  readonly p50: number;
  /** The slow end: of rates, what 99 of 100 rounds reach. With fewer rounds than 100 it is the worst one. */
  readonly p99: number;
  readonly rounds: number;
  /** This p50 over the p50 of the group's first row; null where the rows are different work. */
  readonly ratio: number | null;
}

/** What was measured in turns with each other. The first row is the measure of the others. */
export interface Group {
  readonly name: string;
  readonly title: string;
  readonly unit: Unit;
  readonly rows: readonly Row[];
}

/** What the project wants to reach, beside what it did. Never a reason to fail: machines are shared and noisy. */
export interface Target {
  readonly what: string;
  /** Null where it was not measured. */
  readonly measured: number | null;
  readonly bound: "at least" | "at most";
  readonly wanted: number;
}

export interface Machine {
  readonly cores: number;
  readonly memoryBytes: number;
  readonly node: string;
  readonly engine: string;
  /** Processes that wanted a processor, over a minute: before and after. */
  readonly loadBefore: number;
  readonly loadAfter: number;
}

/** All of one run of the bench, as its JSON. */
export interface BenchReport {
  readonly version: 1;
  readonly level: string;
  /** ISO 8601, UTC. */
  readonly startedAt: string;
  readonly durationMs: number;
  readonly machine: Machine;
  readonly groups: readonly Group[];
  readonly targets: readonly Target[];
  /** What was not measured, and why; and what a number leaves out. */
  readonly notes: readonly string[];
}

/** `work`: `different` where the rows have nothing to do with each other. */
export function groupOf(
  name: string,
  title: string,
  unit: Unit,
  series: readonly Series[],
  work: "same" | "different" = "same",
): Group {
  const slow = unit === "items/s" ? 0.01 : 0.99;
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

/** The p50 of a row by its group and its name, whatever number was at once; null where it was not measured. */
export function medianOf(groups: readonly Group[], group: string, row: string): number | null {
  const isRow = (name: string): boolean => name === row || name.replace(AT_ONCE, "") === row;
  const found = groups.find(({ name }) => name === group)?.rows.find(({ name }) => isRow(name));
  return found === undefined || Number.isNaN(found.p50) ? null : found.p50;
}

/** A contender of many items is called by how many were at once when it was quickest. */
const AT_ONCE = /, \d+ at once$/;
