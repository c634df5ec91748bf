import fs from "node:fs";
import { dirname } from "node:path";
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { hasCode } from "../../platform/errno.ts";

/** The journal cannot be used as it is: the text says why, and what helps. It may hold host paths. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

/**
 * Longer than any transaction here takes on a slow disk: whoever waits longer waits for a process that hangs. This process
 * does nothing else meanwhile.
 */
const BUSY_MS = 10_000;
const CACHE_KIB = 16 * 1024;
/** Pages that gather in the write-ahead log before they are brought home: 16 MiB, for few flushes. */
const CHECKPOINT_PAGES = 4096;
/** SQLite's own number for a database that somebody else uses. */
const SQLITE_BUSY = 5;
const LARGEST_LOG_BYTES = 64 * 1024 ** 2;

/**
 * One SQLite database, shared among processes. A commit survives the death of this process, always; what was committed
 * durably also survives that of the machine, with all that was committed before it.
 *
 * Transactions are short and synchronous, so no other code of this process sees one half done.
 */
export class Database implements Disposable {
  readonly #db: DatabaseSync;
  /** As many as there are different texts in this folder. */
  readonly #prepared = new Map<string, StatementSync>();

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  /** Makes the file, and its directory, where they are not there. */
  static async open(path: string): Promise<Database> {
    const { DatabaseSync } = await sqlite();
    fs.mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    makePrivate(path);
    const db = new DatabaseSync(path);
    try {
      db.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
      const mode = db.prepare("PRAGMA journal_mode = WAL").get()?.journal_mode;
      if (mode !== "wal")
        throw new JournalError(`${path} is on a file system that cannot share a journal: use a local one`);
      db.exec(`PRAGMA synchronous = NORMAL; PRAGMA cache_size = -${CACHE_KIB};
        PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}; PRAGMA journal_size_limit = ${LARGEST_LOG_BYTES}`);
      return new Database(db);
    } catch (error) {
      db.close();
      throw error;
    }
  }

  run(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#statement(sql).run(...values).changes);
  }

  get<Row>(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#statement(sql).get(...values) as Row | undefined;
  }

  all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#statement(sql).all(...values) as Row[];
  }

  /** One row at a time, and a statement of its own: what is read meanwhile does not disturb it. */
  *each<Row>(sql: string, ...values: SQLInputValue[]): Generator<Row, undefined, undefined> {
    for (const row of this.#db.prepare(sql).iterate(...values)) yield row as Row;
  }

  exec(sql: string): void {
    this.#db.exec(sql);
  }

  /** All of what `work` does, or nothing. It holds off every other writer, and must not wait for anything. */
  transaction<T>(work: () => T): T {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      const value = work();
      this.#db.exec("COMMIT");
      return value;
    } catch (error) {
      this.#rollBack();
      throw error;
    }
  }

  /** The same, and on the disk when it returns, with all that was committed before. */
  durably<T>(work: () => T): T {
    this.#db.exec("PRAGMA synchronous = FULL");
    try {
      return this.transaction(work);
    } finally {
      this.#db.exec("PRAGMA synchronous = NORMAL");
    }
  }

  /** Writes the file anew without what is free in it. Left for another time where somebody else uses it. */
  shrink(): void {
    this.#db.exec("PRAGMA busy_timeout = 0");
    try {
      this.#db.exec("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    } catch (error) {
      if ((error as { errcode?: number }).errcode !== SQLITE_BUSY) throw error;
    } finally {
      this.#db.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
    }
  }

  [Symbol.dispose](): void {
    this.#prepared.clear();
    this.#db.close();
  }

  #rollBack(): void {
    try {
      this.#db.exec("ROLLBACK");
    } catch {
      // SQLite has done so already, as where the disk is full; or nothing was begun.
    }
  }

  #statement(sql: string): StatementSync {
    let statement = this.#prepared.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#prepared.set(sql, statement);
    }
    return statement;
  }
}

/** Only when it is used: an older Node warns of it, or has none. */
async function sqlite(): Promise<typeof import("node:sqlite")> {
  try {
    return await import("node:sqlite");
  } catch (cause) {
    throw new JournalError("fleets need Node 22.13 or newer, for node:sqlite", { cause });
  }
}

/**
 * Makes an empty file that only its owner may read; what SQLite puts beside it has the same mode. One that is there is
 * not opened: closing it would give up the locks that this process may have on it.
 */
function makePrivate(path: string): void {
  try {
    fs.closeSync(fs.openSync(path, "wx", 0o600));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}
