import type { FleetSpec, ItemRequest, ItemResult } from "../model/item.ts";
import type { FleetQueue, Taken } from "../model/queue.ts";
import { Database } from "./database.ts";
import {
  createFleet,
  endFleet,
  type FleetRecord,
  type FleetState,
  fleetRow,
  newestFleets,
  pauseFleet,
  recordOf,
  rowOf,
} from "./fleets.ts";
import { discardLoading, forgetEnded } from "./forget.ts";
import { GroupedWrites } from "./grouped-writes.ts";
import { JournalQueue } from "./journal-queue.ts";
import { type Loaded, type LoadOptions, loadItems } from "./load.ts";
import {
  type SummaryLine,
  summaryOf,
  type Throughput,
  type TimelineEntry,
  throughputOf,
  timelineOf,
} from "./report.ts";
import {
  type EarlierSuccess,
  earlierSuccess,
  failedRequests,
  newestFailures,
  resultsOf,
  slowestResults,
} from "./results.ts";
import { migrate } from "./schema.ts";
import { type FencedItem, type NotTakenOver, takeOverFleet } from "./take-over.ts";

export interface JournalOptions {
  /** This process, told apart from every other that was or will be. */
  readonly self: string;
  /** Is this owner certainly gone, for good? */
  readonly isDead: (owner: string) => boolean;
  /** Milliseconds since 1970; another clock only in tests. */
  readonly now?: () => number;
}

export type Resumed =
  | {
      readonly ok: true;
      readonly fleet: FleetRecord;
      /** Remove their containers, and tell each by `fenced`: until then they are not claimed. */
      readonly running: readonly FencedItem[];
    }
  | NotTakenOver;

/**
 * The fleets of one project, on disk, for all processes at once. What it has answered survives `kill -9`; that a fleet was
 * made, loaded, paused, cancelled or ended also a power cut. That may take the last claims and results with it: those items
 * run again, in a later attempt.
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

  /** @throws JournalError for a journal of a newer Corral, and where there can be none. */
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

  /** A new fleet of this process, without items; answers with its id. */
  create(spec: FleetSpec): string {
    return createFleet(this.#db, spec, this.#options.self, this.#options.now());
  }

  /** Fills a fleet that was just created. Afterwards it is `running`, or was never there. */
  async load<Collisions>(
    fleet: string,
    items: AsyncIterable<ItemRequest>,
    options: LoadOptions<Collisions>,
  ): Promise<Loaded<Collisions>> {
    return await loadItems(this.#db, fleet, items, options);
  }

  /** Forgets a fleet whose loading a dead process did not finish. False where there is none such. */
  async discard(fleet: string): Promise<boolean> {
    const owner = fleetRow(this.#db, fleet)?.owner ?? null;
    if (owner === null || !this.#options.isDead(owner)) return false;
    return await discardLoading(this.#db, fleet);
  }

  /** Forgets a fleet that has come to its end, and what its results spare later ones. False where there is none such. */
  async forget(fleet: string): Promise<boolean> {
    return await forgetEnded(this.#db, fleet);
  }

  /** Gives room in the file that nothing needs any more back to the disk, where nobody else uses the journal now. */
  shrink(): void {
    this.#writes.flush();
    this.#db.shrink();
  }

  /** The items of a fleet that this process has loaded or taken over; of another's, to cancel and to count. */
  queue(fleet: string): FleetQueue {
    const { id } = rowOf(this.#db, fleet);
    const { self, now } = this.#options;
    return new JournalQueue({ db: this.#db, writes: this.#writes, fleet: id, owner: self, now });
  }

  /** Makes this process the one that runs the fleet, where no living one does. */
  takeOver(fleet: string): Resumed {
    this.#writes.flush();
    return takeOverFleet(this.#db, fleet, this.#options.self, this.#options.isDead);
  }

  /** Nothing is left of that attempt: its item may be claimed again. */
  async fenced(fleet: string, { index, attempt }: FencedItem): Promise<Taken> {
    return await this.queue(fleet).requeue(index, attempt, 0);
  }

  /** Nobody runs it from here on, until it is taken over. False where this process did not run it. */
  pause(fleet: string, why: string): boolean {
    this.#writes.flush();
    return pauseFleet(this.#db, fleet, this.#options.self, why);
  }

  /** `done`, or `cancelled` where it was; null where items are left, or where this process does not run it. */
  end(fleet: string): FleetState | null {
    this.#writes.flush();
    return endFleet(this.#db, fleet, this.#options.self, this.#options.now());
  }

  /** Null where there is no such fleet. */
  find(fleet: string): FleetRecord | null {
    const row = fleetRow(this.#db, fleet);
    return row === undefined ? null : recordOf(this.#db, row);
  }

  /** The newest first. */
  list(limit = 100): FleetRecord[] {
    return newestFleets(this.#db, limit);
  }

  succeededBefore(cacheKey: string): EarlierSuccess | null {
    return earlierSuccess(this.#db, cacheKey);
  }

  /** In the order of the manifest. */
  results(fleet: string, { status = null }: { status?: string | null } = {}): Generator<ItemResult> {
    return resultsOf(this.#db, rowOf(this.#db, fleet).id, status);
  }

  /** What the items asked for that failed, in the order of the manifest. */
  failed(fleet: string): Generator<ItemRequest> {
    return failedRequests(this.#db, rowOf(this.#db, fleet).id);
  }

  summary(fleet: string): SummaryLine[] {
    return summaryOf(this.#db, rowOf(this.#db, fleet).id);
  }

  timeline(fleet: string): Generator<TimelineEntry> {
    return timelineOf(this.#db, rowOf(this.#db, fleet).id);
  }

  throughput(fleet: string, maxBuckets = 120): Throughput | null {
    return throughputOf(this.#db, rowOf(this.#db, fleet).id, maxBuckets);
  }

  slowest(fleet: string, limit: number): ItemResult[] {
    return slowestResults(this.#db, rowOf(this.#db, fleet).id, limit);
  }

  lastFailures(fleet: string, limit: number): ItemResult[] {
    return newestFailures(this.#db, rowOf(this.#db, fleet).id, limit);
  }

  /** Writes what was asked for, and closes. */
  [Symbol.dispose](): void {
    this.#writes.close();
    this.#db[Symbol.dispose]();
  }
}
