import { type FailureGroup, type ItemResult, isFailure } from "../model/item.ts";
import type { Runner } from "../model/work.ts";

/** What happens while a fleet runs. Times are milliseconds of a monotonic clock. */
export type FleetEvent =
  /** All items are in the journal and none has started. `done`: items that finished before the fleet was resumed. */
  | {
      readonly type: "loaded";
      readonly fleet: string;
      /** What `fleet` names if that is no fleet. */
      readonly what?: string;
      readonly items: number;
      readonly done: number;
      /** Of those that are done. Absent: none. */
      readonly failed?: number;
    }
  | {
      readonly type: "started";
      readonly index: number;
      readonly key: string;
      readonly attempt: number;
      readonly at: number;
      /** The name of the machine that ran it, which has already delivered it; absent: this process runs it. */
      readonly machine?: string;
    }
  /** `retryInMs`: the item is retried and this result does not count; null: it counts. */
  | { readonly type: "settled"; readonly result: ItemResult; readonly retryInMs: number | null; readonly at: number }
  /** How many items machines run, or have delivered, whenever that changes. With each settled result that names a machine it is one less. */
  | { readonly type: "elsewhere"; readonly running: number }
  /** Which machines run how many items, every two seconds if that has changed: those that run most, at most 100. */
  | { readonly type: "machines"; readonly machines: readonly Runner[] }
  /** An item's files are read for long before it can start: they decide whether an earlier result counts, or are copied for its cell. */
  | { readonly type: "reading"; readonly key: string }
  /** For the user only: it may contain host paths. */
  | { readonly type: "trouble"; readonly detail: string }
  /** The database does not answer: the fleet waits for it, and running items continue. `continued`: it answers again. */
  | { readonly type: "waiting"; readonly for: "queue"; readonly why: string }
  | { readonly type: "continued" }
  /** No further item starts; the fleet waits for the running ones. */
  | { readonly type: "draining"; readonly why: string }
  | { readonly type: "ended"; readonly summary: FleetSummary };

/** The state of a fleet, or how it ended. */
export interface FleetSummary {
  readonly fleet: string;
  readonly state: "running" | "done" | "pending" | "paused" | "cancelled";
  /** Why it has not ended; null if it has, with or without changes that wait. */
  readonly why: string | null;
  readonly items: number;
  readonly done: number;
  /** Items by status, including `cached`. */
  readonly byStatus: Readonly<Record<string, number>>;
  /** Unsuccessful items by error code. */
  readonly byReason: Readonly<Record<string, number>>;
  /** Failed items by their last words; the 20 largest groups. */
  readonly failures: readonly FailureGroup[];
  readonly durationMs: number;
}

export type OnFleetEvent = (event: FleetEvent) => void;

/** How far a fleet is. */
export interface FleetTotals {
  readonly fleet: string;
  readonly items: number;
  /** Includes those that had ended before a resume. */
  readonly done: number;
  readonly succeeded: number;
  readonly cached: number;
  readonly failed: number;
  readonly running: number;
}

/** Calls `tell` with the totals whenever they change. */
export function totalsOf(tell: (totals: FleetTotals) => void): (event: FleetEvent) => void {
  let totals = { fleet: "", items: 0, done: 0, succeeded: 0, cached: 0, failed: 0, running: 0 };
  const running = new Set<number>();
  return (event) => {
    if (event.type === "loaded") totals = { ...totals, fleet: event.fleet, items: event.items, done: event.done };
    else if (event.type === "started") running.add(event.index);
    else if (event.type === "settled") {
      running.delete(event.result.index);
      const { status } = event.result;
      if (event.retryInMs === null) {
        totals.done += 1;
        if (status === "succeeded") totals.succeeded += 1;
        else if (status === "cached") totals.cached += 1;
        else if (isFailure(status)) totals.failed += 1;
      }
    } else return;
    tell({ ...totals, running: running.size });
  };
}
