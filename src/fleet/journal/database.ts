import fs from "node:fs";
import { dirname } from "node:path";
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { DiskFull, fullPlace, hasCode } from "../../platform/errno.ts";
import { textBeside } from "../../platform/text-beside.ts";
import type { WriteOutcome } from "../stored/group-commit.ts";

/**
 * The migrations from each version to the next. A released entry is never changed.
 *
 * Requests and results have their own tables, because they may be long and a change of an item's state would rewrite them.
 * Times are milliseconds since 1970. The partial indexes for `queued` and `running` serve `journal-queue.ts`; the others
 * serve reports.
 */
const MIGRATIONS: readonly string[] = [
  textBeside(import.meta.url, "schema.sql"),
  // `cause` groups failures. `earlier`: attempts before the item was last retried in place; its result of then stays until
  // the new attempt ends, so an item that waits or runs can have a status.
  `ALTER TABLE items ADD COLUMN cause TEXT;
   ALTER TABLE items ADD COLUMN earlier INTEGER NOT NULL DEFAULT 0;
   CREATE TABLE streams (item INTEGER PRIMARY KEY, stdout BLOB, stderr BLOB) STRICT;
   CREATE TABLE attempts (
     item INTEGER NOT NULL,
     attempt INTEGER NOT NULL,
     json TEXT NOT NULL,
     PRIMARY KEY (item, attempt)
   ) STRICT, WITHOUT ROWID;`,
  // An item that is `running` and has a row here has begun to change files, and never runs again. `printed`: it has streams.
  `CREATE TABLE intents (
     item INTEGER PRIMARY KEY,
     json TEXT NOT NULL,
     cache_key TEXT,
     printed INTEGER NOT NULL,
     stdout BLOB,
     stderr BLOB
   ) STRICT;`,
  // A search reads keys alone, in the order of the manifest; the rows have more than it needs.
  "CREATE INDEX items_search ON items (fleet, position, key);",
];

/** @throws JournalError if a newer Corral wrote the journal. */
export function migrate(db: Database): void {
  if (versionOf(db) === MIGRATIONS.length) return;
  db.durably(() => {
    // Another process may have migrated it in the meantime.
    const version = versionOf(db);
    if (version > MIGRATIONS.length)
      throw new JournalError(
        `The journal of fleets has version ${version}, but this Corral supports only ${MIGRATIONS.length}. Use the newer Corral.`,
      );
    for (const step of MIGRATIONS.slice(version)) db.exec(step);
    db.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}

function versionOf(db: Database): number {
  return db.get<{ user_version: number }>("PRAGMA user_version")?.user_version ?? 0;
}

export interface JournalWrite {
  /** Must not wait, and may be called twice: an error rolls back its group. */
  readonly write: () => unknown;
  /** It also survives a power failure, with all before it. */
  readonly isDurable: boolean;
}

/** Commits all in one transaction. Rejects if each should be tried alone; after a database error they would fail too, perhaps after another long wait. */
export async function commitToJournal(db: Database, writes: readonly JournalWrite[]): Promise<WriteOutcome[]> {
  const writeAll = (): WriteOutcome[] => writes.map(({ write }) => ({ value: write() }));
  try {
    return writes.some(({ isDurable }) => isDurable) ? db.durably(writeAll) : db.transaction(writeAll);
  } catch (error) {
    if (!isOfDatabase(error)) throw error;
    return writes.map(() => ({ error }));
  }
}

function isOfDatabase(error: unknown): boolean {
  return hasCode(error, "ERR_SQLITE_ERROR") || error instanceof DiskFull;
}

/** SQLite's error codes for a disk that is full, or that takes no more pages of the log. */
const OF_DISK = [13, 10];

/** The same error, or that the disk is full, with its place. */
function withPlace(error: unknown, path: string): unknown {
  const code = ((error as { errcode?: number }).errcode ?? 0) & 0xff;
  return OF_DISK.includes(code) && fullPlace([path]) !== null ? new DiskFull(dirname(path), { cause: error }) : error;
}

/** The journal cannot be used. The message says why and what to do; it may contain host paths. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

/**
 * Longer than any transaction here takes on a slow disk; a longer wait means that another process hangs. Waiting blocks this
 * process.
 */
const BUSY_MS = 10_000;
const CACHE_KIB = 16 * 1024;
/** Pages in the write-ahead log before a checkpoint: 16 MiB, for few flushes. */
const CHECKPOINT_PAGES = 4096;
/** SQLite's error code for a database that another connection uses. */
const SQLITE_BUSY = 5;
const LARGEST_LOG_BYTES = 64 * 1024 ** 2;

/**
 * One SQLite database, shared among processes. Every commit survives the death of this process; a durable commit, and all
 * commits before it, also survive a power failure.
 *
 * Transactions are short and synchronous, so no other code of this process sees an incomplete one.
 */
export class Database implements Disposable {
  readonly #db: DatabaseSync;
  readonly #path: string;
  /** By SQL text; bounded by the number of texts in this folder. */
  readonly #prepared = new Map<string, StatementSync>();

  private constructor(db: DatabaseSync, path: string) {
    this.#db = db;
    this.#path = path;
  }

  /** Creates the file and its directory if they do not exist. */
  static async open(path: string): Promise<Database> {
    const { DatabaseSync } = sqlite();
    fs.mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    makePrivate(path);
    const db = new DatabaseSync(path);
    try {
      db.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
      const mode = db.prepare("PRAGMA journal_mode = WAL").get()?.journal_mode;
      if (mode !== "wal")
        throw new JournalError(
          `${path} is on a file system without shared memory for SQLite's write-ahead log. Put the state directory on a local disk.`,
        );
      db.exec(`PRAGMA synchronous = NORMAL; PRAGMA cache_size = -${CACHE_KIB};
        PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}; PRAGMA journal_size_limit = ${LARGEST_LOG_BYTES}`);
      return new Database(db, path);
    } catch (error) {
      db.close();
      throw withPlace(error, path);
    }
  }

  run(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#statement(sql).run(...bound(sql, values)).changes);
  }

  get<Row>(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#statement(sql).get(...bound(sql, values)) as Row | undefined;
  }

  all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#statement(sql).all(...bound(sql, values)) as Row[];
  }

  /** One row at a time, with its own statement, so that other reads do not disturb it. */
  *each<Row>(sql: string, ...values: SQLInputValue[]): Generator<Row, undefined, undefined> {
    for (const row of this.#db.prepare(sql).iterate(...bound(sql, values))) yield row as Row;
  }

  exec(sql: string): void {
    this.#db.exec(sql);
  }

  /** Commits all of what `work` does, or nothing. It blocks every other writer, so `work` must not wait. */
  transaction<T>(work: () => T): T {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      const value = work();
      this.#db.exec("COMMIT");
      return value;
    } catch (error) {
      try {
        this.#db.exec("ROLLBACK");
      } catch {
        // SQLite already rolled back, for example on a full disk, or no transaction was open.
      }
      throw withPlace(error, this.#path);
    }
  }

  /** The same; all commits so far are on disk when it returns. */
  durably<T>(work: () => T): T {
    this.#db.exec("PRAGMA synchronous = FULL");
    try {
      return this.transaction(work);
    } finally {
      this.#db.exec("PRAGMA synchronous = NORMAL");
    }
  }

  /** Rewrites the file without free pages. Does nothing if another connection uses the database. */
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

  #statement(sql: string): StatementSync {
    let statement = this.#prepared.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#prepared.set(sql, statement);
    }
    return statement;
  }
}

/** A value of `?2` is given by its name: Node 22 takes one by its place for a bare `?` alone. No text here has both. */
function bound(sql: string, values: readonly SQLInputValue[]): [SQLInputValue] {
  const named = sql.match(/\?\d+/g);
  const given = named?.map((name) => [name, values[Number(name.slice(1)) - 1]]);
  // Of the two forms that a statement takes, the types know one at a time.
  return (given === undefined ? values : [Object.fromEntries(given)]) as [SQLInputValue];
}

/** Loaded on use, and at once: Node 22 warns that it may change, which no user of Corral can do anything about, and other warnings must be seen. */
function sqlite(): typeof import("node:sqlite") {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  const found = process.getBuiltinModule("node:sqlite");
  process.emitWarning = emitWarning;
  if (found === undefined) throw new JournalError("Fleets need node:sqlite. Use Node 22.13 or newer.");
  return found;
}

/**
 * Creates an empty file that only its owner may read; SQLite gives its own files the same mode. An existing file is not
 * opened, because closing it would release this process's locks on it.
 */
function makePrivate(path: string): void {
  try {
    fs.closeSync(fs.openSync(path, "wx", 0o600));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}
