import type { ItemRequest, ItemResult } from "./item.ts";

/**
 * The items of one fleet that still have to run, for whoever runs them. The journal of a project is the embedded one, for
 * a single process; one that many machines share, each with an Engine of its own, keeps the same promises:
 *
 * - an item is with one claimer at a time, and each claim of it is another attempt;
 * - an attempt that was given up is fenced off: what it says afterwards is refused;
 * - what a promise here has settled with survives the end of this process.
 *
 * Fresh items come first, in the order of the manifest; then those that are tried again, the longest due first.
 */
export interface FleetQueue {
  /**
   * Up to `count` items, at most {@link MAX_CLAIM}, each with an attempt of its own from `newAttempt`. None where the
   * fleet is not `running`, or where all that waits has to wait longer.
   */
  claim(count: number, newAttempt: () => NewAttempt): Promise<Claim>;
  /** Records the result of an attempt, for good. */
  settle(index: number, attempt: number, settlement: Settlement): Promise<Taken>;
  /** Gives an attempt up: the item is to be claimed again, and not before `notBeforeMs` (since 1970). */
  requeue(index: number, attempt: number, notBeforeMs: number): Promise<Taken>;
  counts(): Promise<ItemCounts>;
  /**
   * Cancels the fleet: nothing is claimed from here on, and what waits will never run. What runs is its claimer's to end
   * and to settle. Answers with how many items waited; may be repeated where it was interrupted.
   */
  cancelQueued(why: string): Promise<number>;
}

export const MAX_CLAIM = 1000;

/** What a claimer knows before an item runs, and whoever fences it off later has to find. */
export interface NewAttempt {
  /** The id of the run that will be, which labels its container. */
  readonly run: string;
  /** The container, where it stands already; null: the run's own. */
  readonly cell: string | null;
}

export interface ClaimedItem extends NewAttempt {
  readonly request: ItemRequest;
  /** From 1. */
  readonly attempt: number;
}

export interface Claim {
  readonly items: readonly ClaimedItem[];
  /** When the next of those that have to wait is due, in milliseconds since 1970; null where none waits for a time. */
  readonly nextAtMs: number | null;
  /** `taken`: another owner runs the fleet by now, and this one must stop. */
  readonly fleet: "running" | "paused" | "cancelled" | "done" | "taken";
}

export interface Settlement {
  readonly result: ItemResult;
  /** Names what ran on what, by content: hexadecimal digits of a hash. Null: not to be found again. */
  readonly cacheKey: string | null;
  /** Which of the places that run side by side it was in, from 0, for a timeline. */
  readonly slot: number | null;
}

/** Whether the attempt still counted. One that did not is over: nothing of it was recorded. */
export type Taken = { readonly ok: true } | { readonly ok: false; readonly code: "fenced"; readonly reason: string };

export interface ItemCounts {
  readonly total: number;
  readonly queued: number;
  readonly running: number;
  readonly done: number;
  /** Of those that are done: neither succeeded, nor cached, nor cancelled. */
  readonly failed: number;
}
