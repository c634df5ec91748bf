import { BLOB_TABLE } from "../../blobs/postgres-blobs.ts";
import { sha256 } from "../../platform/sha256.ts";
import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { QueueError } from "../model/queue.ts";
import { type Connection, SCHEMA, type Statements, schemaTexts } from "./connection.ts";
import { isDenied } from "./lost-connection.ts";

/**
 * The migrations from each version to the next. A released entry is never changed.
 *
 * Times are milliseconds since 1970, of the database's clock: `now_ms` is written so that PostgreSQL puts it in the place of each call,
 * whatever the search path is. Requests, results and streams have their own tables, because they
 * may be long and a change of an item's state would copy them. The partial indexes serve claims, lists and reports.
 */
const FLEETS = `\n${textBeside(import.meta.url, "schema/fleets.sql")}`;

/** Attachments that machines fetch: their digests, with spaces between, so that no blob is removed while an item needs it. */
const ATTACHED = `
ALTER TABLE corral.requests ADD COLUMN attached text;
CREATE INDEX requests_attached ON corral.requests (fleet, position) WHERE attached IS NOT NULL;
`;

/**
 * Questions of runs on machines, for the coordinators of their fleets. A machine asks and takes answers by functions, under its lease
 * and for its own attempts; only an owner of the tables answers. A question that is over keeps its number until its attempt is over, so
 * that an attempt can only ask so often.
 */
const QUESTIONS = `\n${textBeside(import.meta.url, "schema/questions.sql")}`;

/**
 * What one user of the database may take of it, whatever it says: the owner of the tables changes the row of `corral.limits`. Roles are those
 * that logged in, since any number of machines may share one.
 */
const LIMITS = `\n${textBeside(import.meta.url, "schema/limits.sql")}`;

/** Of a row that is written anew, with its entries in indexes: about. */
const ROW_BYTES = 500;

/**
 * What machines do is done by functions that run with the rights of the tables' owner, and check what a machine may do: a role of
 * machines has no right to any table (`machineGrants`). A machine is known by its id, which is random.
 */
const MACHINES = `\n${filledIn(textBeside(import.meta.url, "schema/machines.sql"), { ROW_BYTES })}`;

/** The name of the machine that ran the last attempt of an item that has ended; null: its coordinator did. */
const ITEM_MACHINES = `
ALTER TABLE corral.items ADD COLUMN machine text;
`;

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

/** What a machine may call. */
const FUNCTIONS = [
  "corral.machine_join(text, text[], integer, text, integer)",
  "corral.machine_renew(text, integer)",
  "corral.machine_leave(text)",
  "corral.machine_offers(text)",
  "corral.machine_refuses(text, text, text)",
  "corral.machine_claim(text, text[], text[])",
  "corral.machine_deliver(text, text, integer, integer, text, text, text, text, text)",
  "corral.machine_give_back(text, text, integer, integer, double precision)",
  "corral.machine_withdrawn(text, text[], integer[], integer[])",
  "corral.machine_ask(text, text, integer, integer, integer, text)",
  "corral.machine_unask(text, text, integer, integer, integer)",
  "corral.machine_answers(text)",
  "corral.blobs_has(text[])",
  "corral.blob_put(text, bytea)",
  "corral.blob_piece(text, integer, integer)",
];

/** Of all machines that use a role; ten of them. */
const CONNECTIONS = 50;
/** As users of a pooler set them (docs/machines.md). */
const POOLER_SETTINGS = ["search_path=pg_catalog", "enable_seqscan=off", "jit=off"].map((one) => `'${one}'`).join(", ");

/** Why this is no name of a role that can be made for machines; null if it is one. */
export function roleFault(role: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_-]{0,62}$/.test(role))
    return "the name of a role has letters, digits, _ and -, and at most 63 characters";
  return /^(pg_|public$|none$)/i.test(role) ? "PostgreSQL keeps this name for itself" : null;
}

/**
 * The statements that give a role what `corral work` needs, and nothing else: the version of the tables to read, and functions, which
 * check that an item is its own, and give a blob only to those who know its digest.
 */
export function machineGrants(role: string, schema = SCHEMA): string[] {
  const fault = roleFault(role);
  if (fault !== null) throw new Error(`${JSON.stringify(role)}: ${fault}`);
  return [
    `GRANT USAGE ON SCHEMA corral TO "${role}"`,
    `GRANT SELECT ON corral.version TO "${role}"`,
    ...FUNCTIONS.map((name) => `GRANT EXECUTE ON FUNCTION ${name} TO "${role}"`),
    `DO $do$ BEGIN PERFORM corral.admit_role('${role}'); END $do$`,
  ].map(schemaTexts(schema));
}

/**
 * A script for `psql` that makes the role if it is missing, and gives it the rights that this version needs and no others. All of it is
 * one transaction. A role that could do more than the owner of the tables wants is refused, also if it can by a group, by all users, or by
 * another user's grant.
 */
export function machineRoleScript(role: string, version: string): string {
  return filledIn(textBeside(import.meta.url, "sql/machine-role.sql"), {
    ...{ ROLE: role, VERSION: version, CONNECTIONS, POOLER_SETTINGS },
    GRANTS: machineGrants(role)
      .map((grant) => `${grant};`)
      .join("\n"),
    FUNCTIONS: FUNCTIONS.map((name) => `'${name}'::regprocedure`).join(", "),
  });
}

/** What the user of this connection lacks of what machines need, in words for the owner of the tables. */
export async function lackingRights(db: Statements): Promise<string[]> {
  const functions = FUNCTIONS.map((name) => `('${name}')`);
  const rows = await db.query<{ lacking: string }>(
    `SELECT 'EXECUTE on ' || split_part(name, '(', 1) AS lacking FROM (VALUES ${functions}) AS functions (name)
     WHERE NOT coalesce(has_function_privilege(to_regprocedure(name), 'EXECUTE'), false)
     UNION ALL SELECT 'a count of what it writes' FROM pg_roles WHERE rolname = session_user
       AND to_regclass('corral.written_by_' || oid) IS NULL
       AND NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = to_regclass('corral.version')), 'MEMBER')`,
  );
  return rows.map(({ lacking }) => lacking);
}
