import type { ItemRequest, ItemResult } from "./item.ts";

/** What an item printed, as text. Long streams have their beginning and their end. */
export interface ItemStreams {
  readonly stdout: string;
  readonly stderr: string;
}

/** One item with everything that the store has of it. */
export interface StoredItem {
  readonly state: "queued" | "running" | "done";
  readonly request: ItemRequest;
  /** Null if no attempt has ended. While it is retried, that of the earlier attempt. */
  readonly result: ItemResult | null;
  readonly streams: ItemStreams;
  /** The machine that runs it, or that ran its last attempt; null: the process that owns the fleet, or none. */
  readonly machine: string | null;
  /** Results before the item was retried in place, without outputs; the newest first. */
  readonly attempts: readonly EarlierAttempt[];
}

/** A result that a retry replaced. */
export type EarlierAttempt = Pick<
  ItemResult,
  | "attempt"
  | "status"
  | "run"
  | "machine"
  | "exitCode"
  | "error"
  | "stderrLine"
  | "startedAt"
  | "endedAt"
  | "durationMs"
>;

/** One item of a list: what it is and how it ended, without what it printed. */
export interface ListedItem {
  readonly index: number;
  readonly key: string;
  readonly state: StoredItem["state"];
  /** Of the last attempt that ended; null if none has. */
  readonly status: string | null;
  readonly code: string | null;
  /** Claims of it, the present one included. */
  readonly attempt: number;
  readonly run: string | null;
  /** As in {@link StoredItem}. */
  readonly machine: string | null;
  /** ISO 8601. */
  readonly endedAt: string | null;
  readonly durationMs: number | null;
}

/** Which items are listed. What is absent does not filter. */
export interface ItemFilter {
  readonly state?: StoredItem["state"] | undefined;
  readonly status?: string | undefined;
  /** A part of the key. */
  readonly search?: string | undefined;
  /** Only failed ones. */
  readonly failed?: boolean | undefined;
  /** Only those of the group of failures in which the item with this key is. */
  readonly alike?: string | undefined;
}

/** What one item printed. */
export interface ItemLog extends ItemStreams, Pick<ItemResult, "key" | "status" | "exitCode"> {}

/** An item whose changes wait. */
export interface PendingItem {
  readonly index: number;
  readonly key: string;
  readonly run: string;
}

/** A person's decisions on all changes of an item that was `pending`. */
export interface Reviewed {
  readonly fleet: string;
  /** The item's index. */
  readonly item: number;
  /** The run that made the changes: an item that ran again meanwhile is not meant. */
  readonly run: string;
  /** How many of its changes have which outcome now. */
  readonly counts: Readonly<Record<string, number>>;
}
