import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SQLInputValue } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import type { FleetSpec, ItemRequest, ItemResult, Reviewed } from "../model/item.ts";
import type { FleetQueue, Taken } from "../model/queue.ts";
import {
  type FencedItem,
  type FleetState,
  type FleetStore,
  type LoadedItems,
  type LoadOptions,
  type TakenOver,
  unknownFleet,
  whyNotTaken,
} from "../model/store.ts";
import { FleetReads, SQLITE } from "../stored/fleet-reads.ts";
import { GroupCommit } from "../stored/group-commit.ts";
import { endOf, recordOf, reviewedResult } from "../stored/rows.ts";
import { commitToJournal, Database, type JournalWrite, migrate } from "./database.ts";
import { applyingIn, discardLoading, fleetRow, forgetEnded, loadItems, PAUSE_MS, rowOf } from "./fleets.ts";
import { JournalQueue } from "./journal-queue.ts";

/** Items in one transaction; between two of them other processes can write. */
const CHUNK = 2000;
/** Replaced results that are kept of each item, without what it printed. */
const MAX_EARLIER = 5;

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
    const { self, now } = this.#options;
    const name = randomBytes(6).toString("hex");
    this.#db.durably(() =>
      this.#db.run(
        "INSERT INTO fleets (name, spec, state, owner, created_at) VALUES (?, ?, 'loading', ?, ?)",
        ...[name, JSON.stringify(spec), self, now()],
      ),
    );
    return name;
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
    return this.#db.transaction((): TakenOver => {
      const found = fleetRow(this.#db, fleet);
      if (found === undefined) return unknownFleet(fleet);
      const refusal = whyNotTaken(found, this.#options.isDead, retries);
      if (refusal !== null) return refusal;
      this.#db.run(
        `UPDATE fleets SET owner = ?, why = iif(state = 'cancelled', why, NULL),
           state = iif(state = 'cancelled', 'cancelled', 'running'), ended_at = NULL WHERE id = ?`,
        ...[this.#options.self, found.id],
      );
      // At most as many as the dead owner ran at once.
      const running = this.#db.all<FencedItem>(
        `SELECT position AS "index", key, attempt, run, cell, owner FROM items
         WHERE fleet = ? AND state = 'running' AND NOT EXISTS (SELECT 1 FROM intents WHERE item = items.id)
         ORDER BY position`,
        found.id,
      );
      const applying = applyingIn(this.#db, found.id);
      return { ok: true, fleet: recordOf(rowOf(this.#db, fleet)), running, applying };
    });
  }

  async retryFailed(fleet: string): Promise<number> {
    const { id } = rowOf(this.#db, fleet);
    for (let retried = 0; ; await sleep(PAUSE_MS)) {
      const some = this.#db.transaction(() => retrySome(this.#db, id));
      if (some === 0) return retried;
      retried += some;
    }
  }

  async fenced(fleet: string, { index, attempt }: FencedItem): Promise<Taken> {
    return await (await this.queue(fleet)).requeue(index, attempt, 0, "withdrawn");
  }

  async pause(fleet: string, why: string): Promise<boolean> {
    await this.#writes.flushed();
    const changed = this.#db.durably(() =>
      this.#db.run(
        "UPDATE fleets SET state = 'paused', owner = NULL, why = ? WHERE name = ? AND state = 'running' AND owner = ?",
        ...[why, fleet, this.#options.self],
      ),
    );
    return changed === 1;
  }

  async end(fleet: string): Promise<FleetState | null> {
    await this.#writes.flushed();
    const { self, now } = this.#options;
    return this.#db.durably(() => {
      const row = rowOf(this.#db, fleet);
      const ended = endOf(row, self);
      if (ended === null) return null;
      this.#db.run("UPDATE fleets SET state = ?, owner = NULL, ended_at = ? WHERE id = ?", ended, now(), row.id);
      return ended;
    });
  }

  async endCacheKeys(fleet: string, { mark, valid }: Parameters<FleetStore["endCacheKeys"]>[1]): Promise<void> {
    await this.#writes.flushed();
    this.#db.transaction(() =>
      this.#db.run(
        `UPDATE items SET cache_key = iif(?1, substr(cache_key, ?2), NULL)
         WHERE fleet = ?3 AND state = 'done' AND status = 'succeeded' AND substr(cache_key, 1, ?4) = ?5`,
        ...[valid ? 1 : 0, mark.length + 1, rowOf(this.#db, fleet).id, mark.length, mark],
      ),
    );
  }

  async reviewed(items: readonly Reviewed[]): Promise<readonly Reviewed[]> {
    await this.#writes.flushed();
    return this.#db.durably(() => {
      for (const one of items) record(this.#db, one);
      return items.filter((one) => isUnsettled(this.#db, one));
    });
  }

  protected async flushed(): Promise<void> {
    await this.#writes.flushed();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writes.close();
    this.#db[Symbol.dispose]();
  }
}

function isUnsettled(db: Database, { fleet, item, run }: Reviewed): boolean {
  const row = db.get(
    `SELECT 1 FROM items JOIN fleets ON fleets.id = items.fleet
     WHERE fleets.name = ? AND position = ? AND run = ? AND items.state = 'running'`,
    ...[fleet, item, run],
  );
  return row !== undefined;
}

/** An item that is no longer pending stays as it is, so the same may be recorded twice. */
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
