import type { FailureGroup } from "../model/cause.ts";
import type { FleetSpec, ItemRequest, ItemResult } from "../model/item.ts";
import type { FleetQueue, Taken } from "../model/queue.ts";
import { Database } from "./database.ts";
import {
  countsOf,
  createFleet,
  endFleet,
  type FleetRecord,
  type FleetState,
  fleetRow,
  fleetsLike,
  newestFleets,
  pauseFleet,
  recordOf,
  rowOf,
} from "./fleets.ts";
import { discardLoading, forgetEnded } from "./forget.ts";
import { GroupedWrites } from "./grouped-writes.ts";
import {
  type ItemFilter,
  type ItemLog,
  itemOf,
  type JournalItem,
  keysOf,
  type ListedItem,
  listedItems,
  logsOf,
} from "./item-details.ts";
import { JournalQueue } from "./journal-queue.ts";
import { type Loaded, type LoadOptions, loadItems } from "./load.ts";
import { type Pace, paceOf } from "./pace.ts";
import {
  earlierSuccess,
  endCacheKeys,
  failedRequests,
  failureGroups,
  fieldNames,
  firstResults,
  resultsOf,
  type SummaryLine,
  summaryOf,
  writtenPaths,
} from "./results.ts";
import { retryFailed } from "./retry-failed.ts";
import { type PendingItem, pendingAfter, type Reviewed, recordReviewed } from "./reviewed.ts";
import { migrate } from "./schema.ts";
import { type FencedItem, type TakenOver, takeOverFleet } from "./take-over.ts";

const PENDING_PAGE = 500;

export interface JournalOptions {
  /** Identifies this process among all past and future ones. */
  readonly self: string;
  /** True if this owner has certainly ended. */
  readonly isDead: (owner: string) => boolean;
  /** Milliseconds since 1970; tests replace it. */
  readonly now?: () => number;
}

/**
 * The fleets of one project, on disk, shared by all processes. Every answer survives `kill -9`; creating, loading, pausing,
 * cancelling and ending a fleet also survive a power failure. A power failure may lose the last claims and results; those
 * items run again.
 */
export class FleetJournal implements Disposable {
  readonly #db: Database;
  readonly #writes: GroupedWrites;
  readonly #options: Required<JournalOptions>;

  private constructor(db: Database, options: JournalOptions) {
    this.#db = db;
    this.#writes = new GroupedWrites(db);
    this.#options = { now: Date.now, ...options };
  }

  /** @throws JournalError if a newer Corral wrote the journal, or if it cannot be created. */
  static async open(path: string, options: JournalOptions): Promise<FleetJournal> {
    const db = await Database.open(path);
    try {
      migrate(db);
      return new FleetJournal(db, options);
    } catch (error) {
      db[Symbol.dispose]();
      throw error;
    }
  }

  /** Creates a fleet of this process without items and returns its id. */
  create(spec: FleetSpec): string {
    return createFleet(this.#db, spec, this.#options.self, this.#options.now());
  }

  /** Loads the items of a new fleet. Afterwards it is `running`, or it was removed. */
  async load<Collisions>(
    fleet: string,
    items: AsyncIterable<ItemRequest>,
    options: LoadOptions<Collisions>,
  ): Promise<Loaded<Collisions>> {
    return await loadItems(this.#db, fleet, items, options);
  }

  /** Deletes a fleet whose loading a dead process did not finish. False if there is none. */
  async discard(fleet: string): Promise<boolean> {
    const owner = fleetRow(this.#db, fleet)?.owner ?? null;
    if (owner === null || !this.#options.isDead(owner)) return false;
    return await discardLoading(this.#db, fleet);
  }

  /** Deletes an ended fleet; its results no longer serve as a cache. False if there is none. */
  async forget(fleet: string): Promise<boolean> {
    return await forgetEnded(this.#db, fleet);
  }

  /** Returns unused space in the file to the disk, if no other process uses the journal. */
  shrink(): void {
    this.#writes.flush();
    this.#db.shrink();
  }

  /** The items of a fleet that this process loaded or took over. For other fleets it can only cancel and count. */
  queue(fleet: string): FleetQueue {
    const { id } = rowOf(this.#db, fleet);
    const { self, now } = this.#options;
    return new JournalQueue({ db: this.#db, writes: this.#writes, fleet: id, owner: self, now });
  }

  /** Makes this process the owner of the fleet, if no living process is. */
  takeOver(fleet: string): TakenOver {
    this.#writes.flush();
    return takeOverFleet(this.#db, fleet, this.#options);
  }

  /** The same for a fleet whose failed items are to be retried in place; it may be done. */
  takeOverToRetry(fleet: string): TakenOver {
    this.#writes.flush();
    return takeOverFleet(this.#db, fleet, { ...this.#options, retries: true });
  }

  /** Queues the failed items of a fleet that this process took over, and returns their number. */
  async retryFailed(fleet: string): Promise<number> {
    return await retryFailed(this.#db, rowOf(this.#db, fleet).id);
  }

  /** Records that nothing is left of that attempt, so its item can be claimed again. */
  async fenced(fleet: string, { index, attempt }: FencedItem): Promise<Taken> {
    return await this.queue(fleet).requeue(index, attempt, 0);
  }

  /** Records that no process runs the fleet until it is taken over. False if this process did not run it. */
  pause(fleet: string, why: string): boolean {
    this.#writes.flush();
    return pauseFleet(this.#db, fleet, this.#options.self, why);
  }

  /** Ends the fleet as `done` or `cancelled`; null if items are left, or if this process does not run it. */
  end(fleet: string): FleetState | null {
    this.#writes.flush();
    return endFleet(this.#db, fleet, this.#options.self, this.#options.now());
  }

  /** Null if the fleet does not exist. */
  find(fleet: string): FleetRecord | null {
    const row = fleetRow(this.#db, fleet);
    return row === undefined ? null : recordOf(this.#db, row);
  }

  /** The newest first. */
  list(limit = 100): FleetRecord[] {
    return newestFleets(this.#db, limit);
  }

  /** Those whose ids begin with `prefix`, the newest first. */
  like(prefix: string, limit: number): FleetRecord[] {
    return fleetsLike(this.#db, prefix, limit);
  }

  succeededBefore(cacheKey: string): ReturnType<typeof earlierSuccess> {
    return earlierSuccess(this.#db, cacheKey);
  }

  /** The paths that items of the fleet asked to write, some of them more than once. */
  writtenPaths(fleet: string): Generator<string> {
    return writtenPaths(this.#db, rowOf(this.#db, fleet).id);
  }

  /** Cache keys that begin with `mark` lose the mark, and count from then on, or are deleted. */
  endCacheKeys(fleet: string, how: { readonly mark: string; readonly valid: boolean }): void {
    this.#writes.flush();
    endCacheKeys(this.#db, rowOf(this.#db, fleet).id, how);
  }

  /** In the order of the manifest. */
  results(fleet: string, { status = null }: { status?: string | null } = {}): Generator<ItemResult> {
    return resultsOf(this.#db, rowOf(this.#db, fleet).id, status);
  }

  /** The requests of the failed items, in the order of the manifest. */
  failed(fleet: string): Generator<ItemRequest> {
    return failedRequests(this.#db, rowOf(this.#db, fleet).id);
  }

  /** The items whose changes wait, in the order of the manifest. Others may be decided on between two of them. */
  *pending(fleet: string): Generator<PendingItem, undefined, undefined> {
    const { id } = rowOf(this.#db, fleet);
    for (let after = -1; ; ) {
      const page = pendingAfter(this.#db, id, after, PENDING_PAGE);
      yield* page;
      const last = page.at(-1);
      if (last === undefined) return;
      after = last.index;
    }
  }

  /** Records what a person decided on pending items. It is on disk when this returns. */
  reviewed(items: readonly Reviewed[]): void {
    this.#writes.flush();
    recordReviewed(this.#db, items);
  }

  summary(fleet: string): SummaryLine[] {
    return summaryOf(this.#db, rowOf(this.#db, fleet).id);
  }

  failureGroups(fleet: string): FailureGroup[] {
    return failureGroups(this.#db, rowOf(this.#db, fleet).id);
  }

  /** Of a fleet that runs. */
  pace(fleet: string): Pace {
    this.#writes.flush();
    const row = rowOf(this.#db, fleet);
    const { queued, running } = countsOf(this.#db, row);
    return paceOf(this.#db, row.id, queued + running, this.#options.now());
  }

  /** Null if the fleet has no item with this key. */
  item(fleet: string, key: string): JournalItem | null {
    return itemOf(this.#db, rowOf(this.#db, fleet).id, key);
  }

  /** Items in the order of the manifest, beginning after the item with the index `after`. */
  items(fleet: string, filter: ItemFilter, page: { readonly after: number; readonly limit: number }): ListedItem[] {
    this.#writes.flush();
    return listedItems(this.#db, rowOf(this.#db, fleet).id, filter, page);
  }

  /** Keys of items, the first ones; for messages. */
  keys(fleet: string, limit: number): string[] {
    return keysOf(this.#db, rowOf(this.#db, fleet).id, limit);
  }

  /** What items printed, in the order of the manifest. */
  logs(fleet: string, { failed }: { readonly failed: boolean }): Generator<ItemLog> {
    return logsOf(this.#db, rowOf(this.#db, fleet).id, failed);
  }

  /** The names of the items' own fields, at most so many, in the order in which items have them. */
  fieldNames(fleet: string, limit: number): string[] {
    return fieldNames(this.#db, rowOf(this.#db, fleet).id, limit);
  }

  slowest(fleet: string, limit: number): ItemResult[] {
    return firstResults(this.#db, rowOf(this.#db, fleet).id, "slowest", limit);
  }

  lastFailures(fleet: string, limit: number): ItemResult[] {
    return firstResults(this.#db, rowOf(this.#db, fleet).id, "newest failures", limit);
  }

  /** Executes waiting writes and closes the database. */
  [Symbol.dispose](): void {
    this.#writes.close();
    this.#db[Symbol.dispose]();
  }
}
