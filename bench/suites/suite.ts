import type { Bench } from "../bench.ts";
import type { Group } from "../outcome/report.ts";

/** One part of the bench: its measurements, and notes on them. */
export interface Suite {
  measure(bench: Bench): Promise<{ readonly groups: readonly Group[]; readonly notes?: readonly string[] }>;
}
