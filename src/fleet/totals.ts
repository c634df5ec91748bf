import type { FleetEvent } from "./events.ts";
import { isFailure } from "./model/item.ts";

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
