import type { Bench } from "../bench.ts";
import type { Group } from "../outcome/report.ts";

/** One part of the bench: what it measures in turns, and what is to be said of it. */
export interface Suite {
  measure(bench: Bench): Promise<{ readonly groups: readonly Group[]; readonly notes?: readonly string[] }>;
}
