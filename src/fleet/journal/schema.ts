import { type Database, JournalError } from "./database.ts";

/**
 * The migrations from each version to the next. A released entry is never changed.
 *
 * Requests and results have their own tables, because they may be long and a change of an item's state would rewrite them.
 * Times are milliseconds since 1970. The partial indexes for `queued` and `running` serve `journal-queue.ts`; the others
 * serve reports.
 */
const MIGRATIONS: readonly string[] = [
  `CREATE TABLE fleets (
     id INTEGER PRIMARY KEY,
     name TEXT NOT NULL UNIQUE,
     spec TEXT NOT NULL,
     state TEXT NOT NULL CHECK (state IN ('loading', 'running', 'paused', 'cancelled', 'done')),
     owner TEXT,
     total INTEGER NOT NULL DEFAULT 0,
     created_at INTEGER NOT NULL,
     ended_at INTEGER,
     why TEXT
   ) STRICT;

   CREATE TABLE items (
     id INTEGER PRIMARY KEY,
     fleet INTEGER NOT NULL,
     position INTEGER NOT NULL,
     key TEXT NOT NULL,
     state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done')),
     attempt INTEGER NOT NULL DEFAULT 0,
     not_before INTEGER NOT NULL DEFAULT 0,
     run TEXT,
     cell TEXT,
     owner TEXT,
     status TEXT,
     code TEXT,
     failed INTEGER NOT NULL DEFAULT 0,
     ended_at INTEGER,
     duration_ms REAL,
     cache_key TEXT
   ) STRICT;
   CREATE UNIQUE INDEX items_position ON items (fleet, position);
   CREATE UNIQUE INDEX items_key ON items (fleet, key);
   CREATE INDEX items_queued ON items (fleet, not_before, position) WHERE state = 'queued';
   CREATE INDEX items_running ON items (fleet, position) WHERE state = 'running';
   CREATE INDEX items_status ON items (fleet, status, position) WHERE state = 'done';
   CREATE INDEX items_failed ON items (fleet, ended_at) WHERE failed = 1;
   CREATE INDEX items_cache ON items (substr(cache_key, 1, 16)) WHERE status = 'succeeded';

   CREATE TABLE requests (item INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT;
   CREATE TABLE results (item INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT;

   CREATE TABLE outputs (fleet INTEGER NOT NULL, path BLOB NOT NULL, item INTEGER NOT NULL) STRICT;

   CREATE TABLE tallies (
     fleet INTEGER NOT NULL,
     status TEXT NOT NULL,
     code TEXT NOT NULL,
     failed INTEGER NOT NULL,
     count INTEGER NOT NULL,
     PRIMARY KEY (fleet, status, code)
   ) STRICT, WITHOUT ROWID;`,
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
