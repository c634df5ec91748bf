import type { FleetSpec } from "./item.ts";
import type { ItemCounts } from "./queue.ts";

/**
 * `paused`: no process runs it, and it can be resumed. `pending`: every item has ended, and changes of some wait for a person.
 */
export type FleetState = "loading" | "running" | "paused" | "cancelled" | "done" | "pending";

/** What the store has of a fleet. */
export interface FleetRecord {
  /** 12 hex digits. */
  readonly id: string;
  readonly spec: FleetSpec;
  readonly state: FleetState;
  /** The process that loads or runs it, or did so until it died; null: none. */
  readonly owner: string | null;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  readonly endedAt: string | null;
  /** Why it was paused or cancelled; null if it was not. */
  readonly why: string | null;
  readonly counts: ItemCounts;
}

/** The number of items with one status and error code. */
export interface SummaryLine {
  readonly status: string;
  /** The error code; null if there was no error. */
  readonly code: string | null;
  readonly count: number;
}

/** How quickly the items of a fleet end. */
export interface Pace {
  /** Items that ended per second of late; null if it does not run, or if none ended of late. */
  readonly recentRate: number | null;
  /** The time that what is left takes at this rate; null if that is unknown. */
  readonly leftMs: number | null;
}
