import { BLOB_TABLE } from "../../blobs/postgres/postgres-blobs.ts";
import { sha256 } from "../../platform/sha256.ts";
import { QueueError } from "../model/queue-error.ts";
import type { Connection, Statements } from "./connection.ts";
import { isDenied } from "./explained-error.ts";
import { LIMITS } from "./machine-limits.ts";
import { ITEM_MACHINES, MACHINES } from "./machines-schema.ts";
import { QUESTIONS } from "./questions-schema.ts";
import { ATTACHED, FLEETS } from "./schema.ts";

const MIGRATIONS: readonly string[] = [FLEETS, MACHINES, `${ATTACHED}${BLOB_TABLE}`, ITEM_MACHINES, LIMITS, QUESTIONS];
/** Any number, the same for all: one process migrates at a time. */
const LOCK = 7_215_318;

/** The migrations up to a version. It is stored, since an entry may change before it is released, and the version does not say so. */
export function stepsOf(version: number): string {
  return sha256(MIGRATIONS.slice(0, version).join("\0"));
}

/** @throws QueueError if a newer Corral made the schema, or one that was not released, or if this user may not make it */
export async function migrate(db: Connection, schema: string): Promise<void> {
  if ((await versionOf(db, schema)) === MIGRATIONS.length) return;
  let found = 0;
  try {
    await db.transaction(async (within) => {
      found = await versionOf(within, schema);
      // Any user may take an advisory lock; this lock needs a right that machines lack. Before there are tables there are no machines.
      if (found > 0) await within.query("LOCK TABLE corral.version IN SHARE ROW EXCLUSIVE MODE");
      else await within.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
      // Another process may have migrated it in the meantime.
      const version = await versionOf(within, schema);
      found = version;
      if (version === 0) {
        await within.query("CREATE SCHEMA IF NOT EXISTS corral");
        await within.query("CREATE TABLE corral.version (version integer NOT NULL, steps text NOT NULL)");
        await within.query("INSERT INTO corral.version VALUES (0, '')");
      }
      for (const step of MIGRATIONS.slice(version))
        for (const statement of statementsOf(step)) await within.query(statement);
      const now = MIGRATIONS.length;
      await within.query("UPDATE corral.version SET version = $1, steps = $2", [now, stepsOf(now)]);
    });
  } catch (error) {
    if (!isDenied(error)) throw error;
    throw new QueueError(found === 0 ? NO_TABLES : olderText(found), { cause: error });
  }
}

const NO_TABLES =
  "This database user may not make Corral's tables. Open the queue once as a user who may create schemas, or grant CREATE on the database.";

function olderText(version: number): string {
  return (
    `The queue has version ${version}, this Corral needs ${MIGRATIONS.length}, and this database user may not change tables. Run this version ` +
    "once as the owner of the tables (`corral fleet ls`), and grant machines what it needs (`corral work --grants ROLE`)."
  );
}

const OTHER_STEPS =
  "The tables of the queue are those of a Corral that was not released, and this one needs others. Make the queue anew: as the owner of the " +
  "tables, `DROP SCHEMA corral CASCADE` in psql removes them with all fleets. Then `corral fleet ls` makes new ones, and " +
  "`corral work --grants ROLE` gives machines their rights.";

async function versionOf(db: Statements, schema: string): Promise<number> {
  // By the catalogue itself: to_regclass remembers that there was no table, also after a wait for the lock.
  const [there] = await db.query<{ known: boolean }>(
    `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
       WHERE n.nspname = $1 AND c.relname = 'version') AS known`,
    [schema],
  );
  if (there?.known !== true) return 0;
  const [row] = await db.query<{ version: number; steps?: string }>("SELECT * FROM corral.version");
  const { version = 0, steps } = row ?? {};
  if (version > MIGRATIONS.length)
    throw new QueueError(
      `The queue has version ${version}, but this Corral supports only ${MIGRATIONS.length}. Use the newer Corral.`,
    );
  if (version > 0 && steps !== stepsOf(version)) throw new QueueError(OTHER_STEPS);
  return version;
}

/** A statement ends with a semicolon at the end of a line, outside of the text of a function. */
function statementsOf(script: string): string[] {
  const statements: string[] = [];
  let open = "";
  for (const part of script.split(/(?<=;)\n/)) {
    open += part.endsWith("\n") ? part : `${part}\n`;
    if ((open.split("$$").length - 1) % 2 === 1) continue;
    if (open.trim() !== "") statements.push(open);
    open = "";
  }
  return statements;
}
