import type { ItemResult } from "./model/item.ts";

/** What happens while a fleet goes on. Times are milliseconds of a clock that only goes forward. */
export type FleetEvent =
  /** All items are in the journal, and nothing has run. `done`: of an earlier attempt at the fleet. */
  | { readonly type: "loaded"; readonly fleet: string; readonly items: number; readonly done: number }
  | {
      readonly type: "started";
      readonly index: number;
      readonly key: string;
      readonly attempt: number;
      readonly at: number;
    }
  /** `retryInMs`: it is tried again, and this result does not count; null where it does. */
  | { readonly type: "settled"; readonly result: ItemResult; readonly retryInMs: number | null; readonly at: number }
  /** What is for people to see: it may hold host paths. */
  | { readonly type: "trouble"; readonly detail: string }
  /** Nothing more is begun: what runs is waited for. */
  | { readonly type: "draining"; readonly why: string }
  | { readonly type: "ended"; readonly summary: FleetSummary };

/** How a fleet stands, or ended. */
export interface FleetSummary {
  readonly fleet: string;
  readonly state: "running" | "done" | "paused" | "cancelled";
  /** Why it is not done; null where it is. */
  readonly why: string | null;
  readonly items: number;
  readonly done: number;
  /** By status, `cached` among them. */
  readonly byStatus: Readonly<Record<string, number>>;
  /** By error code, of what did not succeed. */
  readonly byReason: Readonly<Record<string, number>>;
  readonly durationMs: number;
}

export type OnFleetEvent = (event: FleetEvent) => void;
