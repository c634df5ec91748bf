import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SQLInputValue } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import type { FleetSpec, ItemRequest, ItemResult, Reviewed } from "../model/item.ts";
import type { FleetQueue, Taken } from "../model/queue.ts";
import type {
  DeclaredOutput,
  FencedItem,
  FleetState,
  FleetStore,
  LoadedItems,
  LoadOptions,
  LoadProblem,
  TakenOver,
} from "../model/store.ts";
import { SQLITE } from "../stored/dialects.ts";
import { FleetReads } from "../stored/fleet-reads.ts";
import { GroupCommit } from "../stored/group-commit.ts";
import { collided, duplicateKey, type RequestRow, requestBatches } from "../stored/request-batches.ts";
import { type FleetRow, outputKey, pathOf, reviewedResult } from "../stored/rows.ts";
import { commitToJournal, Database, type JournalWrite, migrate } from "./database.ts";
import {
  createFleet,
  deleteOutputs,
  discardLoading,
  endCacheKeys,
  endFleet,
  fleetRow,
  forgetEnded,
  pauseFleet,
  rowOf,
  takeOverFleet,
} from "./fleets.ts";
import { JournalQueue } from "./journal-queue.ts";

/** Items in one transaction; between two of them other processes can write. */
const CHUNK = 2000;
/** For other processes, because SQLite has no queue of waiting writers. */
const PAUSE_MS = 1;
/** Replaced results that are kept of each item, without what it printed. */
const MAX_EARLIER = 5;

/**
 * Queues all failed items of a fleet again. Their results stay until new attempts end, but no longer count. Returns the number
 * of items. If it is interrupted, the items of the last chunk on stay failed, and can be retried again.
 */
async function retryFailed(db: Database, fleet: number): Promise<number> {
  for (let retried = 0; ; await sleep(PAUSE_MS)) {
    const some = db.transaction(() => retrySome(db, fleet));
    if (some === 0) return retried;
    retried += some;
  }
}

function retrySome(db: Database, fleet: number): number {
  const failed = db.all<{ id: number; status: string; code: string }>(
    "SELECT id, status, code FROM items WHERE fleet = ? AND failed = 1 AND state = 'done' LIMIT ?",
    ...[fleet, CHUNK],
  );
  for (const { id, status, code } of failed) {
    keepEarlier(db, id);
    db.run("UPDATE items SET state = 'queued', not_before = 0, run = NULL, earlier = attempt WHERE id = ?", id);
    db.run("UPDATE tallies SET count = count - 1 WHERE fleet = ? AND status = ? AND code = ?", fleet, status, code);
  }
  if (failed.length > 0) db.run("DELETE FROM tallies WHERE fleet = ? AND count < 1", fleet);
  return failed.length;
}

function keepEarlier(db: Database, item: number): void {
  db.run(
    `INSERT OR REPLACE INTO attempts (item, attempt, json)
     SELECT items.id, items.attempt, json_object(
       'attempt', items.attempt, 'status', items.status, 'run', json ->> '$.run', 'exitCode', json -> '$.exitCode',
       'error', json -> '$.error', 'stderrLine', json ->> '$.stderrLine', 'startedAt', json ->> '$.startedAt',
       'endedAt', json ->> '$.endedAt', 'durationMs', json -> '$.durationMs')
     FROM items JOIN results ON results.item = items.id WHERE items.id = ?`,
    item,
  );
  db.run(
    `DELETE FROM attempts WHERE item = ?1 AND attempt <=
       (SELECT attempt FROM attempts WHERE item = ?1 ORDER BY attempt DESC LIMIT 1 OFFSET ?2)`,
    ...[item, MAX_EARLIER],
  );
}

export interface JournalOptions {
  /** Identifies this process among all past and future ones. */
  readonly self: string;
  /** True if this owner has certainly ended. */
  readonly isDead: (owner: string) => boolean;
  /** Milliseconds since 1970; tests replace it. */
  readonly now?: () => number;
}

/**
 * The fleets of one project in an SQLite database, for the processes of one machine. A power failure may lose the last claims and
 * results; those items run again.
 */
export class FleetJournal extends FleetReads implements FleetStore {
  readonly database = null;
  readonly work = null;
  readonly #db: Database;
  readonly #writes: GroupCommit<JournalWrite>;
  readonly #options: Required<JournalOptions>;

  private constructor(db: Database, options: JournalOptions) {
    const { now = Date.now } = options;
    super({
      dialect: SQLITE,
      project: "",
      now,
      query: async <Row>(text: string, values: readonly unknown[]) => db.all<Row>(text, ...(values as SQLInputValue[])),
    });
    this.#db = db;
    this.#writes = new GroupCommit((writes) => commitToJournal(db, writes));
    this.#options = { ...options, now };
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

  async create(spec: FleetSpec): Promise<string> {
    return createFleet(this.#db, spec, this.#options.self, this.#options.now());
  }

  async load<Collisions>(
    fleet: string,
    items: AsyncIterable<ItemRequest>,
    options: LoadOptions<Collisions>,
  ): Promise<LoadedItems<Collisions>> {
    return await loadItems(this.#db, fleet, items, options);
  }

  async discard(fleet: string): Promise<boolean> {
    const owner = fleetRow(this.#db, fleet)?.owner ?? null;
    if (owner === null || !this.#options.isDead(owner)) return false;
    return await discardLoading(this.#db, fleet);
  }

  async forget(fleet: string): Promise<boolean> {
    return await forgetEnded(this.#db, fleet);
  }

  async shrink(): Promise<void> {
    await this.#writes.flushed();
    this.#db.shrink();
  }

  async queue(fleet: string): Promise<FleetQueue> {
    const { id } = rowOf(this.#db, fleet);
    const { self, now } = this.#options;
    return new JournalQueue({ db: this.#db, writes: this.#writes, fleet: id, owner: self, now });
  }

  async takeOver(fleet: string, { retries } = { retries: false }): Promise<TakenOver> {
    await this.#writes.flushed();
    return takeOverFleet(this.#db, fleet, { ...this.#options, retries });
  }

  async retryFailed(fleet: string): Promise<number> {
    return await retryFailed(this.#db, rowOf(this.#db, fleet).id);
  }

  async fenced(fleet: string, { index, attempt }: FencedItem): Promise<Taken> {
    return await (await this.queue(fleet)).requeue(index, attempt, 0, "withdrawn");
  }

  async pause(fleet: string, why: string): Promise<boolean> {
    await this.#writes.flushed();
    return pauseFleet(this.#db, fleet, this.#options.self, why);
  }

  async end(fleet: string): Promise<FleetState | null> {
    await this.#writes.flushed();
    return endFleet(this.#db, fleet, this.#options.self, this.#options.now());
  }

  async endCacheKeys(fleet: string, how: { readonly mark: string; readonly valid: boolean }): Promise<void> {
    await this.#writes.flushed();
    endCacheKeys(this.#db, rowOf(this.#db, fleet).id, how);
  }

  async reviewed(items: readonly Reviewed[]): Promise<readonly Reviewed[]> {
    await this.#writes.flushed();
    return recordReviewed(this.#db, items);
  }

  protected async flushed(): Promise<void> {
    await this.#writes.flushed();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writes.close();
    this.#db[Symbol.dispose]();
  }
}

/**
 * Records the decisions on items, all at once and on disk when it returns. An item that is no longer pending stays as it is, so
 * the same may be recorded twice. Returns those whose run is not settled yet.
 */
function recordReviewed(db: Database, reviewed: readonly Reviewed[]): readonly Reviewed[] {
  return db.durably(() => {
    for (const one of reviewed) record(db, one);
    return reviewed.filter((one) => isUnsettled(db, one));
  });
}

function isUnsettled(db: Database, { fleet, item, run }: Reviewed): boolean {
  const row = db.get(
    `SELECT 1 FROM items JOIN fleets ON fleets.id = items.fleet
     WHERE fleets.name = ? AND position = ? AND run = ? AND items.state = 'running'`,
    ...[fleet, item, run],
  );
  return row !== undefined;
}

function record(db: Database, { fleet, item, run, counts }: Reviewed): void {
  const row = db.get<{ id: number; fleet: number; code: string; json: string }>(
    `SELECT items.id, items.fleet, code, json FROM items JOIN fleets ON fleets.id = items.fleet
     JOIN results ON results.item = items.id
     WHERE fleets.name = ? AND position = ? AND run = ? AND items.state = 'done' AND status = 'pending'`,
    ...[fleet, item, run],
  );
  if (row === undefined) return;
  const before = JSON.parse(row.json) as ItemResult;
  const after = reviewedResult(before, counts);
  const { status, error } = after;
  const code = error?.code ?? "";
  db.run("UPDATE items SET status = ?, code = ? WHERE id = ?", status, code, row.id);
  db.run("UPDATE results SET json = ? WHERE item = ?", JSON.stringify(after), row.id);
  const key = [row.fleet, "pending", row.code] as const;
  db.run("UPDATE tallies SET count = count - 1 WHERE fleet = ? AND status = ? AND code = ?", ...key);
  db.run("DELETE FROM tallies WHERE fleet = ? AND status = ? AND code = ? AND count <= 0", ...key);
  db.run(
    `INSERT INTO tallies (fleet, status, code, failed, count) VALUES (?, ?, ?, 0, 1)
     ON CONFLICT (fleet, status, code) DO UPDATE SET count = count + 1`,
    ...[row.fleet, status, code],
  );
}

/** A store for checking items that never run. Disposing removes it. */
export async function throwawayStore(): Promise<AsyncDisposable & { readonly store: FleetStore }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-dry-run-"));
  const remove = (): Promise<void> => rm(dir, { recursive: true, force: true });
  try {
    const store: FleetStore = await FleetJournal.open(join(dir, "fleets.db"), { self: "dry-run", isDead: () => false });
    return {
      store,
      async [Symbol.asyncDispose]() {
        await store[Symbol.asyncDispose]();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/**
 * Reads all items of a fleet into the journal, one batch in memory at a time, in ascending order of their index. The fleet
 * may run only when all items are loaded and do not collide. If loading fails, nothing is left of the fleet.
 */
export async function loadItems<Collisions>(
  db: Database,
  name: string,
  items: AsyncIterable<ItemRequest>,
  { collisionsIn, signal }: LoadOptions<Collisions>,
): Promise<LoadedItems<Collisions>> {
  const fleet = rowOf(db, name);
  if (fleet.state !== "loading") throw new Error(`fleet ${name} is already loaded: it is ${fleet.state}`);
  try {
    const problem =
      (await insertAll(db, fleet, items, signal)) ?? collided(await collisionsIn(sortedOutputs(db, fleet.id)));
    if (problem !== null) {
      await discardLoading(db, name);
      return { ok: false, problem };
    }
    await deleteOutputs(db, fleet.id);
    return { ok: true, total: beginRunning(db, fleet) };
  } catch (error) {
    // The first error is reported. A fleet that could not be deleted stays `loading` and cannot run.
    await discardLoading(db, name).catch(() => {});
    throw error;
  }
}

async function insertAll(
  db: Database,
  { id }: FleetRow,
  items: AsyncIterable<ItemRequest>,
  signal: AbortSignal | undefined,
): Promise<LoadProblem<never> | null> {
  for await (const batch of requestBatches(items, signal)) {
    if (!batch.ok) return batch.problem;
    const duplicate = insert(db, id, batch.rows);
    if (duplicate !== null) return duplicate;
    await sleep(PAUSE_MS);
  }
  return null;
}

/** Null if the whole batch was inserted; otherwise the problem, and nothing was inserted. */
function insert(db: Database, fleet: number, batch: readonly RequestRow[]): LoadProblem<never> | null {
  return db.transaction(() => {
    for (const { request, json } of batch) {
      const item = db.get<{ id: number }>(
        "INSERT INTO items (fleet, position, key) VALUES (?, ?, ?) ON CONFLICT (fleet, key) DO NOTHING RETURNING id",
        fleet,
        request.index,
        request.key,
      );
      if (item === undefined) return duplicateOf(db, fleet, request);
      db.run("INSERT INTO requests (item, json) VALUES (?, ?)", item.id, json);
      for (const path of request.allowWrite ?? [])
        db.run("INSERT INTO outputs (fleet, path, item) VALUES (?, ?, ?)", fleet, outputKey(path), item.id);
    }
    db.run("UPDATE fleets SET total = total + ? WHERE id = ?", batch.length, fleet);
    return null;
  });
}

function duplicateOf(db: Database, fleet: number, { key, place }: ItemRequest): LoadProblem<never> {
  const first = db.get<{ json: string }>(
    "SELECT json FROM requests WHERE item = (SELECT id FROM items WHERE fleet = ? AND key = ?)",
    fleet,
    key,
  );
  return duplicateKey(first?.json, { key, place });
}

/** Makes the fleet ready to run. It is on disk with all of its items when this returns. */
function beginRunning(db: Database, { id, name, owner }: FleetRow): number {
  return db.durably(() => {
    const began = db.run(
      "UPDATE fleets SET state = 'running' WHERE id = ? AND state = 'loading' AND owner IS ?",
      id,
      owner,
    );
    if (began === 0) throw new Error(`fleet ${name} was removed while its items were loaded`);
    return rowOf(db, name).total;
  });
}

/** All paths that a fleet's items may write, sorted by components. SQLite sorts large sets on disk. */
async function* sortedOutputs(db: Database, fleet: number): AsyncGenerator<DeclaredOutput, void, undefined> {
  const rows = db.each<{ path: Uint8Array; key: string }>(
    "SELECT path, key FROM outputs JOIN items ON items.id = outputs.item WHERE outputs.fleet = ? ORDER BY path, position",
    fleet,
  );
  for (const { path, key } of rows) yield { path: pathOf(path), key };
}
