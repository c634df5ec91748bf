import type { ItemRequest, ItemResult } from "./item.ts";

/** The database that has the fleets cannot be used. The message says why and what to do, and has no password. */
export class QueueError extends Error {
  override readonly name = "QueueError";
  /** It does not answer now, and may later. */
  readonly isPassing: boolean;

  constructor(
    message: string,
    { isPassing = false, ...options }: ErrorOptions & { readonly isPassing?: boolean } = {},
  ) {
    super(message, options);
    this.isPassing = isPassing;
  }
}

/** No item that is queued again waits longer. */
export const LONGEST_DELAY_MS = 30_000;

/**
 * The items of one fleet that still have to run. The project's journal implements it for a single process; an implementation
 * that many machines share must keep the same promises:
 *
 * - an item has one claimer at a time, and each claim is a new attempt;
 * - an attempt that was given up is fenced off: a later result of it is refused, and it can begin no effect;
 * - an attempt that began its effect is never given up: what it began is finished, so the item does not run again;
 * - only the owner of the fleet begins, settles and gives up: in the transaction that records it, no other process can take the fleet
 *   over, so of two that believe to own it one is refused;
 * - the effect of a settled promise survives the end of this process.
 *
 * New items come first, in the order of the manifest; then retries, the longest due first.
 */
export interface FleetQueue {
  /**
   * Claims up to `count` items, from 0 to {@link MAX_CLAIM}, each with a new attempt from `newAttempt`. None if the fleet is not
   * `running`, or if no waiting item is due.
   */
  claim(count: number, newAttempt: () => NewAttempt, urgency?: Urgency): Promise<Claim>;
  /**
   * Called before the first effect of an attempt outside of its sandbox. If it is refused, nothing may be changed. On disk when it
   * settles: from then on the item does not run again, and after a crash the next owner of the fleet finishes what was begun. A
   * second call of the same attempt replaces the intent.
   */
  begin(index: number, attempt: number, intent: IntendedSettlement): Promise<Taken>;
  /** Records the final result of an attempt. */
  settle(index: number, attempt: number, settlement: Settlement, urgency?: Urgency): Promise<Taken>;
  /**
   * Gives up an attempt: the item can be claimed again, not before `notBeforeMs` (since 1970). Refused after {@link begin}. `withdrawn`: the
   * attempt did not fail, so it does not count for retries.
   */
  requeue(index: number, attempt: number, notBeforeMs: number, why?: "failed" | "withdrawn"): Promise<Taken>;
  counts(): Promise<ItemCounts>;
  /**
   * Cancels the fleet: no item is claimed any more, and waiting items never run. The claimers of running items end and settle
   * them. Returns the number of cancelled items; it may be called again if it was interrupted.
   */
  cancelQueued(why: string): Promise<number>;
}

export const MAX_CLAIM = 1000;

/** `soon`: it may wait some milliseconds for other writes, to be in one transaction with them. `now` is the default. */
export type Urgency = "now" | "soon";

/** Recorded before an item runs, so that a later process can find and fence off the attempt. */
export interface NewAttempt {
  /** The id of the future run; it labels the container. */
  readonly run: string;
  /** The container, if it already exists; null: the run creates its own. */
  readonly cell: string | null;
}

export interface ClaimedItem extends NewAttempt {
  readonly request: ItemRequest;
  /** From 1. */
  readonly attempt: number;
  /** Attempts that do not count for further retries: those before the item was last retried in place, and those that were withdrawn. */
  readonly earlier: number;
}

export interface Claim {
  readonly items: readonly ClaimedItem[];
  /** When the next waiting item is due, in milliseconds since 1970; null if none waits for a time. */
  readonly nextAtMs: number | null;
  /** Items that machines run, or have delivered: the fleet continues while there are any. */
  readonly elsewhere: number;
  /** `taken`: another owner runs the fleet, and this one must stop. */
  readonly fleet: "running" | "paused" | "cancelled" | "done" | "taken";
}

export interface Settlement {
  readonly result: ItemResult;
  /** A hash of everything that the result depends on, in hexadecimal. Null: the result is not used as a cache entry. */
  readonly cacheKey: string | null;
  /** What the worker printed; null if nothing ran. */
  readonly streams: { readonly stdout: string; readonly stderr: string } | null;
}

/** The settlement of an attempt as it will be if all that it is about to change can be changed. */
export type IntendedSettlement = Settlement;

/** Whether the attempt still counted. If not, nothing of it was recorded. */
export type Taken = { readonly ok: true } | NotTaken;

export type NotTaken =
  /** Another attempt counts, or none: what this one kept is to be removed. */
  | { readonly ok: false; readonly code: "fenced"; readonly reason: string }
  /** Another process has taken over the fleet. `isInherited`: with this attempt, so what it kept is that process's to finish. */
  | { readonly ok: false; readonly code: "taken"; readonly reason: string; readonly isInherited: boolean };

export interface ItemCounts {
  readonly total: number;
  readonly queued: number;
  /** Including those whose effects have begun. */
  readonly running: number;
  readonly done: number;
  /** Done items that neither succeeded nor were cached or cancelled. */
  readonly failed: number;
  /** Done items whose changes wait for a person. */
  readonly pending: number;
}

/** How a process waits for its database, for as long as that is away. Without it each statement waits for a minute. */
export interface WhileAway {
  /** Ends the wait: statements then fail, as long as the database does not answer. */
  readonly over: AbortSignal;
  /** Called with the reason, once for each outage that lasts longer than a restart. */
  readonly onAway: (why: string) => void;
  /** Called when the database answers again after that. */
  readonly onBack: () => void;
}
