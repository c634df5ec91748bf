import type { RunResult } from "../../run/model/result.ts";
import type { CiStep } from "./plan-ci.ts";
import type { CiReports } from "./reports.ts";

/** Which commits; a branch, a tag or an id each. */
export interface CiRevisions {
  readonly base: string;
  readonly head: string;
}

/** How one step ended. */
export interface CiStepEnd {
  readonly step: CiStep;
  /** `kept`: the cache has its packages. `skipped`: what it needs did not succeed. */
  readonly status: RunResult["status"] | "kept" | "skipped";
  /** Null if nothing ran. */
  readonly result: RunResult | null;
  /** What the head says of its own tests; null if it has no reports. */
  readonly reports: CiReports | null;
}

export interface CiEnd extends CiRevisions {
  readonly isChanged: boolean;
  readonly isTrusted: boolean;
  /** In the order of the steps. */
  readonly ends: readonly CiStepEnd[];
  /** The newest record of the audit trail after this run. */
  readonly trail: { readonly seq: number; readonly hash: string } | null;
}

/** What needs it may run. */
export function isGood(status: CiStepEnd["status"]): boolean {
  return status === "succeeded" || status === "kept";
}
