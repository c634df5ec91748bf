import { BLOB_TABLE } from "../../blobs/postgres-blobs.ts";
import { sha256 } from "../../platform/sha256.ts";
import { QueueError } from "../model/queue.ts";
import type { Connection, Statements } from "./connection.ts";
import { isDenied } from "./lost-connection.ts";
import { ITEM_MACHINES, MACHINES } from "./machines-schema.ts";

/**
 * The migrations from each version to the next. A released entry is never changed.
 *
 * Times are milliseconds since 1970, of the database's clock: `now_ms` is written so that PostgreSQL puts it in the place of each call,
 * whatever the search path is. Requests, results and streams have their own tables, because they
 * may be long and a change of an item's state would copy them. The partial indexes serve claims, lists and reports.
 */
const FLEETS = `
CREATE FUNCTION corral.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8
$$;

CREATE TABLE corral.processes (
  id text PRIMARY KEY,
  is_machine boolean NOT NULL,
  name text NOT NULL,
  labels text[] NOT NULL DEFAULT '{}',
  slots integer NOT NULL DEFAULT 0,
  version text NOT NULL DEFAULT '',
  joined_at bigint NOT NULL,
  seen_at bigint NOT NULL,
  lease_until bigint NOT NULL
);

CREATE TABLE corral.fleets (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE,
  project text NOT NULL,
  spec text NOT NULL,
  state text NOT NULL CHECK (state IN ('loading', 'running', 'paused', 'cancelled', 'done')),
  owner text,
  total integer NOT NULL DEFAULT 0,
  created_at bigint NOT NULL,
  ended_at bigint,
  why text,
  field_names text NOT NULL DEFAULT '[]',
  needs text[],
  priority integer NOT NULL DEFAULT 0,
  weight integer NOT NULL DEFAULT 1,
  agreement text
);
CREATE INDEX fleets_project ON corral.fleets (project, id);
CREATE INDEX fleets_offered ON corral.fleets (id) WHERE agreement IS NOT NULL;

CREATE TABLE corral.items (
  fleet bigint NOT NULL,
  position integer NOT NULL,
  key text NOT NULL,
  key_hash bytea NOT NULL,
  state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'away', 'delivered', 'applying', 'done')),
  attempt integer NOT NULL DEFAULT 0,
  earlier integer NOT NULL DEFAULT 0,
  not_before bigint NOT NULL DEFAULT 0,
  run text,
  cell text,
  owner text,
  status text,
  code text,
  cause text,
  failed smallint NOT NULL DEFAULT 0,
  ended_at bigint,
  duration_ms double precision,
  cache_key text,
  PRIMARY KEY (fleet, position)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX items_key ON corral.items (fleet, key_hash);
CREATE INDEX items_queued ON corral.items (fleet, not_before, position) WHERE state = 'queued';
CREATE INDEX items_active ON corral.items (fleet, position) WHERE state IN ('running', 'away', 'delivered', 'applying');
CREATE INDEX items_away ON corral.items (owner) WHERE state = 'away';
CREATE INDEX items_status ON corral.items (fleet, status, position) WHERE state = 'done';
CREATE INDEX items_failed ON corral.items (fleet, ended_at) WHERE failed = 1;
CREATE INDEX items_cache ON corral.items (cache_key) WHERE status = 'succeeded' AND cache_key IS NOT NULL;

CREATE TABLE corral.requests (
  fleet bigint NOT NULL, position integer NOT NULL, json text NOT NULL, fields text, writes text,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.results (
  fleet bigint NOT NULL, position integer NOT NULL, json text NOT NULL,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.streams (
  fleet bigint NOT NULL, position integer NOT NULL, stdout bytea, stderr bytea,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.intents (
  fleet bigint NOT NULL, position integer NOT NULL, json text NOT NULL, cache_key text, is_printed boolean NOT NULL,
  stdout bytea, stderr bytea,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.attempts (
  fleet bigint NOT NULL, position integer NOT NULL, attempt integer NOT NULL, json text NOT NULL,
  PRIMARY KEY (fleet, position, attempt)
);
CREATE TABLE corral.outputs (fleet bigint NOT NULL, path bytea NOT NULL, position integer NOT NULL, rank bigint);
CREATE INDEX outputs_fleet ON corral.outputs (fleet, rank);
CREATE TABLE corral.tallies (
  fleet bigint NOT NULL, status text NOT NULL, code text NOT NULL, failed smallint NOT NULL, count integer NOT NULL,
  PRIMARY KEY (fleet, status, code)
);
`;

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
const QUESTIONS = `
CREATE TABLE corral.questions (
  fleet bigint NOT NULL,
  position integer NOT NULL,
  attempt integer NOT NULL,
  number integer NOT NULL,
  machine text NOT NULL,
  machine_name text NOT NULL,
  asked_at bigint NOT NULL,
  json text NOT NULL,
  answer text,
  is_over boolean NOT NULL DEFAULT false,
  PRIMARY KEY (fleet, position, attempt, number)
);
CREATE INDEX questions_machine ON corral.questions (machine);

CREATE FUNCTION corral.machine_ask(
  machine_id text, fleet_name text, item integer, item_attempt integer, question integer, new_json text)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fleet_id bigint := (SELECT id FROM corral.fleets WHERE name = fleet_name);
  member_name text;
BEGIN
  PERFORM corral.check_sees_all();
  IF octet_length(new_json) > 262144 OR question NOT BETWEEN 0 AND 499 THEN
    RAISE EXCEPTION 'this question is too large, or there are too many';
  END IF;
  PERFORM corral.count_written(octet_length(new_json) + 1000);
  -- One question of a machine after another, so that they are counted.
  SELECT p.name INTO member_name FROM corral.processes p
  WHERE p.id = machine_id AND p.is_machine AND p.lease_until > corral.now_ms() FOR UPDATE;
  IF NOT FOUND THEN RETURN 'the lease of this machine has ended'; END IF;
  IF NOT EXISTS (SELECT 1 FROM corral.items i WHERE i.fleet = fleet_id AND i.position = item AND i.state = 'away'
                 AND i.owner = machine_id AND i.attempt = item_attempt) THEN
    RETURN corral.why_fenced(fleet_id, item, item_attempt);
  END IF;
  -- An earlier call may have been committed although its answer was lost.
  IF EXISTS (SELECT 1 FROM corral.questions q WHERE q.fleet = fleet_id AND q.position = item AND q.attempt = item_attempt
             AND q.number = question) THEN RETURN 'taken'; END IF;
  DELETE FROM corral.questions q WHERE q.machine = machine_id AND NOT EXISTS (
    SELECT 1 FROM corral.items i WHERE i.fleet = q.fleet AND i.position = q.position AND i.state = 'away'
    AND i.owner = machine_id AND i.attempt = q.attempt);
  IF (SELECT count(*) FROM corral.questions q WHERE q.machine = machine_id AND NOT q.is_over) >= 1000
    OR (SELECT count(*) FROM corral.questions q WHERE q.fleet = fleet_id AND q.position = item AND q.attempt = item_attempt AND NOT q.is_over) >= 50 THEN
    RETURN 'too many questions already wait for an answer';
  END IF;
  INSERT INTO corral.questions (fleet, position, attempt, number, machine, machine_name, asked_at, json)
  VALUES (fleet_id, item, item_attempt, question, machine_id, member_name, corral.now_ms(), new_json);
  PERFORM pg_notify('corral', fleet_name);
  RETURN 'taken';
END $$;

CREATE FUNCTION corral.machine_unask(machine_id text, fleet_name text, item integer, item_attempt integer, question integer)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM corral.count_written(500);
  UPDATE corral.questions q SET is_over = true, json = '', answer = NULL
  FROM corral.fleets f
  WHERE f.name = fleet_name AND q.fleet = f.id AND q.position = item AND q.attempt = item_attempt AND q.number = question
    AND q.machine = machine_id AND NOT q.is_over AND corral.is_member(machine_id);
  IF FOUND THEN PERFORM pg_notify('corral', fleet_name); END IF;
END $$;

CREATE FUNCTION corral.machine_answers(machine_id text)
RETURNS TABLE (fleet text, item integer, attempt integer, question integer, answer text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.name, q.position, q.attempt, q.number, q.answer
  FROM corral.questions q JOIN corral.fleets f ON f.id = q.fleet
  JOIN corral.items i ON i.fleet = q.fleet AND i.position = q.position
  WHERE q.machine = machine_id AND NOT q.is_over AND q.answer IS NOT NULL AND i.state = 'away' AND i.owner = machine_id
    AND i.attempt = q.attempt AND corral.is_member(machine_id)
  ORDER BY q.fleet, q.position, q.number LIMIT 1000
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
`;

/**
 * What one user of the database may take of it, whatever it says: the owner of the tables changes the row of `corral.limits`. Roles are those
 * that logged in, since any number of machines may share one.
 */
const LIMITS = `
CREATE TABLE corral.limits (
  is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
  machines_per_role integer NOT NULL DEFAULT 1000,
  bytes_per_hour bigint NOT NULL DEFAULT 107374182400 CHECK (bytes_per_hour BETWEEN 0 AND 1000000000000)
);
INSERT INTO corral.limits DEFAULT VALUES;

ALTER TABLE corral.processes ADD COLUMN role text NOT NULL DEFAULT '';
ALTER TABLE corral.items ADD COLUMN claimed_at bigint;

-- One row for each role that machines use: to count them, its row is locked, and no other role waits for it.
CREATE TABLE corral.joined (role text PRIMARY KEY);

-- What a role has written in this hour, also what it rolled back: of all that a transaction changes, only sequences keep that. Its value is
-- the hour, and then the bytes in 13 digits. Each role has its own from corral work --grants: one that its transaction makes would go with it.
CREATE FUNCTION corral.admit_role(new_role text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  counter text := 'written_by_' || (SELECT oid FROM pg_roles WHERE rolname = new_role);
BEGIN
  IF to_regclass('corral.' || counter) IS NULL THEN EXECUTE format('CREATE SEQUENCE corral.%I', counter); END IF;
END $$;

-- Before anything is written: what is refused or rolled back afterwards stays on the disk until it is vacuumed.
CREATE FUNCTION corral.count_written(bytes bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  hour bigint := corral.now_ms() / 3600000 * 10000000000000;
  counter regclass;
  total bigint;
BEGIN
  IF bytes IS NULL THEN RAISE EXCEPTION 'this call lacks a value'; END IF;
  -- Coordinators use the user that owns the tables.
  IF pg_has_role(session_user, current_user, 'MEMBER') THEN RETURN; END IF;
  counter := to_regclass('corral.written_by_' || (SELECT oid FROM pg_roles WHERE rolname = session_user));
  IF counter IS NULL THEN
    RAISE EXCEPTION 'what the database user % writes is not counted: run corral work --grants for it again', session_user;
  END IF;
  total := greatest(pg_sequence_last_value(counter), hour);
  IF bytes > (SELECT bytes_per_hour FROM corral.limits) - (total - hour) THEN
    RAISE EXCEPTION 'the database user % has written too much in this hour: see corral.limits', session_user USING ERRCODE = '53400';
  END IF;
  PERFORM setval(counter, total + bytes);
END $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
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
