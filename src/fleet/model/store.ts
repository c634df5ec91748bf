import type {
  FailureGroup,
  FleetSpec,
  ItemFilter,
  ItemLog,
  ItemRequest,
  ItemResult,
  ListedItem,
  PendingItem,
  Reviewed,
  StoredItem,
} from "./item.ts";
import type { ClaimedItem, FleetQueue, IntendedSettlement, ItemCounts, Taken } from "./queue.ts";
import type { WorkStore } from "./work.ts";

/**
 * The fleets of one project with their items and results, shared by all processes. Every implementation promises, and
 * `test/fleet/journal/` checks:
 *
 * - what a settled promise recorded survives the end of this process; creating, loading, pausing, cancelling and ending a fleet,
 *   and a person's decisions, also survive a power failure;
 * - a fleet has one owner at a time, and only another that has certainly ended loses it to {@link takeOver};
 * - methods that take the id of a fleet reject with an `Error` if there is no such fleet, unless they say otherwise.
 *
 * Lists are read in pages: each page shows the fleet as it is then, and few items are in memory.
 */
export interface FleetStore extends AsyncDisposable {
  /** Where its fleets are: a database, as messages name it, without user and password. Null: in the journal of this machine. */
  readonly database: string | null;
  /** How machines take part in its fleets; null: they cannot. */
  readonly work: WorkStore | null;

  /** Creates a fleet of this process without items, in the state `loading`, and returns its id. */
  create(spec: FleetSpec): Promise<string>;
  /** Loads the items of a new fleet. Afterwards it is `running`, or it was removed. */
  load<Collisions>(
    fleet: string,
    items: AsyncIterable<ItemRequest>,
    options: LoadOptions<Collisions>,
  ): Promise<LoadedItems<Collisions>>;
  /** Deletes a fleet whose loading a dead process did not finish. False if there is none. */
  discard(fleet: string): Promise<boolean>;
  /** Deletes an ended fleet; its results no longer serve as a cache. False if there is none. */
  forget(fleet: string): Promise<boolean>;
  /** Returns unused space to the disk, if no other process uses the store. */
  shrink(): Promise<void>;

  /** The items of a fleet that this process loaded or took over. For other fleets it can only cancel and count. */
  queue(fleet: string): Promise<FleetQueue>;
  /**
   * Makes this process the owner of the fleet, if no living process is: only one of two attempts at the same time succeeds. A cancelled fleet that
   * has not ended stays cancelled, so that its owner can end it. `retries`: its failed items are to be retried in place, and it may be done.
   */
  takeOver(fleet: string, how?: { readonly retries: boolean }): Promise<TakenOver>;
  /**
   * Queues the failed items of a fleet that this process took over, and returns their number. Their results stay until new attempts end, but no
   * longer count. If it is interrupted, those that are left stay failed, and can be retried again.
   */
  retryFailed(fleet: string): Promise<number>;
  /** Records that nothing is left of that attempt, so its item can be claimed again. */
  fenced(fleet: string, item: FencedItem): Promise<Taken>;
  /** Records that no process runs the fleet until it is taken over. False if this process did not run it. */
  pause(fleet: string, why: string): Promise<boolean>;
  /** Ends the fleet as `done` or `cancelled`; null if items are left, or if this process does not run it. */
  end(fleet: string): Promise<FleetState | null>;

  /** Null if the fleet does not exist. */
  find(fleet: string): Promise<FleetRecord | null>;
  /** The newest first; 100 without a limit. */
  list(limit?: number): Promise<FleetRecord[]>;
  /** Those whose ids begin with `prefix`, the newest first. */
  like(prefix: string, limit: number): Promise<FleetRecord[]>;

  /** The newest item of any fleet of the project that succeeded with the same cache key; null if there is none. */
  succeededBefore(cacheKey: string): Promise<{ readonly fleet: string; readonly result: ItemResult } | null>;
  /** Cache keys that begin with `mark` lose the mark, and count from then on, or are deleted. */
  endCacheKeys(fleet: string, how: { readonly mark: string; readonly valid: boolean }): Promise<void>;
  /** The paths that items of the fleet asked to write, some of them more than once. */
  writtenPaths(fleet: string): AsyncGenerator<string, void, undefined>;

  /** In the order of the manifest, those that have ended. */
  results(fleet: string, filter?: { readonly status?: string | null }): AsyncGenerator<ItemResult, void, undefined>;
  /** The requests of the failed items, in the order of the manifest, to run them again. */
  failed(fleet: string): AsyncGenerator<ItemRequest, void, undefined>;
  /** The items whose changes wait, in the order of the manifest. Others may be decided on between two of them. */
  pending(fleet: string): AsyncGenerator<PendingItem, void, undefined>;
  /**
   * Records what a person decided on pending items. An item that is no longer pending stays as it is. Returns those whose run
   * has not been settled yet: they have to be recorded again afterwards.
   */
  reviewed(items: readonly Reviewed[]): Promise<readonly Reviewed[]>;

  /** The most frequent first. */
  summary(fleet: string): Promise<SummaryLine[]>;
  /** The largest first, at most 20. */
  failureGroups(fleet: string): Promise<FailureGroup[]>;
  /** Of a fleet that runs. */
  pace(fleet: string): Promise<Pace>;
  /** Null if the fleet has no item with this key. */
  item(fleet: string, key: string): Promise<StoredItem | null>;
  /** Items in the order of the manifest, beginning after the item with the index `after`. */
  items(
    fleet: string,
    filter: ItemFilter,
    page: { readonly after: number; readonly limit: number },
  ): Promise<ListedItem[]>;
  /** Keys of items, the first ones; for messages. */
  keys(fleet: string, limit: number): Promise<string[]>;
  /** What items printed, in the order of the manifest. */
  logs(fleet: string, filter: { readonly failed: boolean }): AsyncGenerator<ItemLog, void, undefined>;
  /** The names of the items' own fields, at most so many, in the order in which items have them. */
  fieldNames(fleet: string, limit: number): Promise<string[]>;
  slowest(fleet: string, limit: number): Promise<ItemResult[]>;
  lastFailures(fleet: string, limit: number): Promise<ItemResult[]>;
}

/** A path that an item may write, and the item's key. */
export interface DeclaredOutput {
  /** A virtual path, as requested. */
  readonly path: string;
  readonly key: string;
}

export interface LoadOptions<Collisions> {
  /** Checks the paths that items may write, sorted by components; null: no two items collide. */
  readonly collisionsIn: (sorted: AsyncIterable<DeclaredOutput>) => Promise<Collisions | null>;
  readonly signal?: AbortSignal;
}

/** Why a fleet cannot be loaded. Nothing of it is kept. */
export type LoadProblem<Collisions> =
  | { readonly code: "duplicate_key"; readonly key: string; readonly places: readonly [string, string] }
  | { readonly code: "collisions"; readonly collisions: Collisions }
  | { readonly code: "too_large"; readonly place: string; readonly bytes: number; readonly maxBytes: number }
  | { readonly code: "too_many"; readonly maxItems: number };

export type LoadedItems<Collisions> =
  | { readonly ok: true; readonly total: number }
  | { readonly ok: false; readonly problem: LoadProblem<Collisions> };

/** An item that ran when its owner died. Its container must be removed before the item may run again. */
export interface FencedItem extends Pick<ItemRequest, "index" | "key">, Omit<ClaimedItem, "request" | "earlier"> {
  readonly owner: string;
}

/** An item whose effect had begun when its owner died. It does not run again: the effect is finished, and the item is settled. */
export interface ApplyingItem extends Pick<ItemRequest, "index" | "key">, Pick<ClaimedItem, "attempt" | "run"> {
  readonly intent: IntendedSettlement;
}

/**
 * `running` can be claimed again after their containers are removed and `fenced` was called for each. `owner`: the process
 * that runs the fleet.
 */
export type TakenOver =
  | {
      readonly ok: true;
      readonly fleet: FleetRecord;
      readonly running: readonly FencedItem[];
      readonly applying: readonly ApplyingItem[];
    }
  | {
      readonly ok: false;
      readonly code: "unknown" | "owned" | "never_loaded" | "over" | "cancelled";
      readonly reason: string;
      readonly owner: string | null;
    };

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

type Refused = Extract<TakenOver, { ok: false }>;

interface OwnedFleet extends Pick<FleetRecord, "owner"> {
  readonly name: string;
  readonly state: string;
  readonly ended_at: number | null;
}

/** Why a fleet cannot be taken over; null: it can. `retries`: a fleet that is done can be, and one that is cancelled cannot. */
export function whyNotTaken(
  { name, state, owner, ended_at }: OwnedFleet,
  isDead: (owner: string) => boolean,
  retries: boolean,
): Refused | null {
  if (retries && state === "cancelled")
    return refused("cancelled", `fleet ${name} was cancelled: its failed items can be retried as a new fleet`);
  if (ended_at !== null && !retries) return refused("over", `fleet ${name} is ${state}: no item is left to run`);
  if (owner !== null && !isDead(owner))
    return refused("owned", `another process ${state === "loading" ? "loads" : "runs"} fleet ${name}`, owner);
  if (state === "loading")
    return refused(
      "never_loaded",
      `the process that loaded the items of fleet ${name} ended before it had all of them. No item ran: start a new fleet`,
    );
  return null;
}

export function unknownFleet(name: string): Refused {
  return refused("unknown", `there is no fleet ${name} in this project`);
}

function refused(code: Refused["code"], reason: string, owner: string | null = null): Refused {
  return { ok: false, code, reason, owner };
}
