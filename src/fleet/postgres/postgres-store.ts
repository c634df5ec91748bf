import { createHmac, randomBytes } from "node:crypto";
import { join } from "node:path";
import { removeLines } from "../../state/live-dir.ts";
import { currentOwner, formatOwner, isAlive, isDead, loadSealKey, parseOwner } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import type { EarlierAttempt, FleetSpec, ItemRequest, ItemResult, Reviewed } from "../model/item.ts";
import type { FleetQueue, Taken, WhileAway } from "../model/queue.ts";
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
import { FleetReads, POSTGRES } from "../stored/fleet-reads.ts";
import { GroupCommit } from "../stored/group-commit.ts";
import { endOf, processOf, recordOf } from "../stored/rows.ts";
import {
  type Connection,
  isOpenToOthers,
  OwnerLease,
  SCHEMA,
  type Scope,
  type Statements,
  serverText,
} from "./connection.ts";
import {
  applyingIn,
  discardLoading,
  fleetRow,
  forgetEnded,
  hasOwnerEnded,
  isUnsettled,
  loadItems,
  newStoreOwner,
  recordReview,
  rowOf,
} from "./fleets.ts";
import { PERSISTENCE } from "./lost-connection.ts";
import { migrate } from "./migrate.ts";
import { BegunLog, PostgresQueue, StreamBudget } from "./postgres-queue.ts";
import { connectServer } from "./server.ts";
import { PostgresWork } from "./work.ts";
import { commitWrites, type Write } from "./writes.ts";

/** Items in one transaction, with their results in memory. */
const CHUNK = 200;
/** Replaced results that are kept of each item, without what it printed. */
const MAX_EARLIER = 5;

interface FailedRow {
  readonly position: number;
  readonly attempt: number;
  readonly status: string;
  readonly json: string | null;
}

async function retrySome(db: Statements, fleet: number): Promise<number> {
  const failed = await db.query<FailedRow>(
    `SELECT i.position, i.attempt, i.status, r.json FROM corral.items i LEFT JOIN corral.results r USING (fleet, position)
     WHERE i.fleet = $1 AND i.failed = 1 AND i.state = 'done' LIMIT $2 FOR UPDATE OF i`,
    [fleet, CHUNK],
  );
  if (failed.length === 0) return 0;
  const positions = failed.map(({ position }) => position);
  await db.query(
    `INSERT INTO corral.attempts (fleet, position, attempt, json)
     SELECT $1, * FROM unnest($2::int[], $3::int[], $4::text[])
     ON CONFLICT (fleet, position, attempt) DO UPDATE SET json = excluded.json`,
    [fleet, positions, failed.map(({ attempt }) => attempt), failed.map((row) => JSON.stringify(earlierOf(row)))],
  );
  await db.query(
    `DELETE FROM corral.attempts a USING (
       SELECT position, attempt, row_number() OVER (PARTITION BY position ORDER BY attempt DESC) AS age
       FROM corral.attempts WHERE fleet = $1 AND position = ANY ($2::int[])) AS ranked
     WHERE a.fleet = $1 AND a.position = ranked.position AND a.attempt = ranked.attempt AND ranked.age > $3`,
    [fleet, positions, MAX_EARLIER],
  );
  await db.query(
    `WITH waiting AS (
       UPDATE corral.items SET state = 'queued', not_before = 0, run = NULL, earlier = attempt
       WHERE fleet = $1 AND position = ANY ($2::int[]) RETURNING status, code),
     gone AS (SELECT status, code, count(*) AS count FROM waiting GROUP BY status, code)
     UPDATE corral.tallies t SET count = t.count - gone.count FROM gone
     WHERE t.fleet = $1 AND t.status = gone.status AND t.code = gone.code`,
    [fleet, positions],
  );
  await db.query("DELETE FROM corral.tallies WHERE fleet = $1 AND count < 1", [fleet]);
  return failed.length;
}

function earlierOf({ attempt, status, json }: FailedRow): EarlierAttempt {
  const kept = JSON.parse(json ?? "{}") as Partial<ItemResult>;
  const { run = null, exitCode = null, error = null, stderrLine = null, startedAt = null } = kept;
  const { endedAt = "", durationMs = 0, machine } = kept;
  const ran = present({ machine });
  return { attempt, status, run, ...ran, exitCode, error, stderrLine, startedAt, endedAt, durationMs };
}

/** What fleets have begun to change on this machine, one file for each. Without a directory a restored database is not noticed. */
class BegunLogs {
  readonly #dir: string | undefined;
  /** By the id of the fleet; those that this process runs. */
  readonly #logs = new Map<string, BegunLog>();

  constructor(dir: string | undefined) {
    this.#dir = dir;
  }

  of(fleet: string): BegunLog | null {
    const log = this.#logs.get(fleet) ?? this.asNow(fleet);
    if (log !== null) this.#logs.set(fleet, log);
    return log;
  }

  /** With what other processes have written since. */
  again(fleet: string): BegunLog | null {
    this.#logs.delete(fleet);
    return this.of(fleet);
  }

  /** For a fleet that another process may run later. */
  asNow(fleet: string): BegunLog | null {
    return this.#dir === undefined ? null : new BegunLog(join(this.#dir, fleet), fleet);
  }

  async remove(fleet: string): Promise<void> {
    this.#logs.delete(fleet);
    if (this.#dir !== undefined) await removeLines(join(this.#dir, fleet));
  }
}

export interface PostgresOptions extends Pick<Scope, "project" | "self" | "isDead" | "isAlive"> {
  /** Milliseconds since 1970; only tests replace the database's clock. */
  readonly now?: () => number;
  readonly schema?: string;
  /** Where this machine keeps what its fleets have begun to change; absent: a restored database is not noticed. */
  readonly begunDir?: string;
  /** See {@link FleetStore.database}. */
  readonly database?: string;
}

/** The fleets of one project in a PostgreSQL database, which other projects and machines share. */
export class PostgresStore extends FleetReads implements FleetStore {
  readonly database: string;
  readonly work: PostgresWork;
  readonly #scope: Scope;
  readonly #writes: GroupCommit<Write>;
  readonly #lease: OwnerLease;
  /** By the number of the fleet; those that this process runs. */
  readonly #budgets = new Map<number, StreamBudget>();
  readonly #begun: BegunLogs;

  private constructor(scope: Scope, { database = "", begunDir }: Pick<PostgresOptions, "database" | "begunDir">) {
    const { db, project, now } = scope;
    super({ dialect: POSTGRES, project, now, query: async (text, values) => await db.query(text, values) });
    this.database = database;
    this.#begun = new BegunLogs(begunDir);
    this.#scope = scope;
    this.#writes = new GroupCommit((writes) => commitWrites(scope, writes));
    this.#lease = new OwnerLease(scope.db, scope.self);
    this.work = new PostgresWork(scope);
  }

  /** Closing the store closes the connection. @throws QueueError if a newer Corral made the queue */
  static async open(db: Connection, { schema = SCHEMA, now, ...of }: PostgresOptions): Promise<PostgresStore> {
    try {
      await migrate(db, schema);
      return new PostgresStore({ ...of, db, now: now ?? (() => null) }, of);
    } catch (error) {
      await db[Symbol.asyncDispose]();
      throw error;
    }
  }

  async create(spec: FleetSpec): Promise<string> {
    await this.#lease.begin();
    const { db, project, self, now } = this.#scope;
    const name = randomBytes(6).toString("hex");
    const { needs = null, priority = 0, weight = 1 } = spec.machines ?? {};
    await db.query(
      `INSERT INTO corral.fleets (name, project, spec, state, owner, created_at, needs, priority, weight)
       VALUES ($1, $2, $3, 'loading', $4, coalesce($5::bigint, corral.now_ms()), $6, $7, $8) ON CONFLICT (name) DO NOTHING`,
      [name, project, JSON.stringify(spec), self, now(), needs, priority, weight],
    );
    return name;
  }

  async load<Collisions>(
    fleet: string,
    items: AsyncIterable<ItemRequest>,
    options: LoadOptions<Collisions>,
  ): Promise<LoadedItems<Collisions>> {
    return await loadItems(this.#scope, fleet, items, options);
  }

  async discard(fleet: string): Promise<boolean> {
    const row = await fleetRow(this.#scope, fleet, this.#scope.db);
    if (row === undefined || row.owner === null) return false;
    if (!(await hasOwnerEnded(this.#scope, this.#scope.db, row.owner))) return false;
    return await discardLoading(this.#scope, fleet);
  }

  async forget(fleet: string): Promise<boolean> {
    const isGone = await forgetEnded(this.#scope, fleet);
    if (isGone) await this.#begun.remove(fleet);
    return isGone;
  }

  /** PostgreSQL uses the space again by itself. */
  async shrink(): Promise<void> {
    await this.#writes.flushed();
  }

  async queue(fleet: string): Promise<FleetQueue> {
    const { db } = this.#scope;
    const id = await this.idOf(fleet);
    const budget = this.#budgets.get(id) ?? (await StreamBudget.of(db, id));
    this.#budgets.set(id, budget);
    return new PostgresQueue({
      scope: this.#scope,
      writes: this.#writes,
      fleet: id,
      budget,
      begun: this.#begun.of(fleet),
    });
  }

  async takeOver(fleet: string, { retries } = { retries: false }): Promise<TakenOver> {
    await this.#writes.flushed();
    await this.#lease.begin();
    const begun = this.#begun.again(fleet);
    const { db, project, self } = this.#scope;
    const taken = await db.transaction(async (within, again): Promise<TakenOver> => {
      await within.query("SELECT 1 FROM corral.fleets WHERE project = $1 AND name = $2 FOR UPDATE", [project, fleet]);
      const found = await fleetRow(this.#scope, fleet, within);
      if (found === undefined) return unknownFleet(fleet);
      const hasEnded = found.owner === null ? false : await hasOwnerEnded(this.#scope, within, found.owner);
      const isFree = (owner: string): boolean => hasEnded || (again && owner === self);
      const refusal = whyNotTaken(found, isFree, retries);
      if (refusal !== null) return refusal;
      // No item of a cancelled one runs.
      if (found.state !== "cancelled") await begun?.compare(within, found.id);
      await within.query(
        `UPDATE corral.fleets SET owner = $1, why = CASE WHEN state = 'cancelled' THEN why END, agreement = NULL,
           state = CASE WHEN state = 'cancelled' THEN 'cancelled' ELSE 'running' END, ended_at = NULL WHERE id = $2`,
        [self, found.id],
      );
      // At most as many as the dead owner ran at once. What machines run or delivered stays theirs.
      const running = await within.query<FencedItem>(
        `SELECT i.position AS "index", i.key, i.attempt, i.run, i.cell, i.owner FROM corral.items i
         WHERE i.fleet = $1 AND i.state = 'running'
           AND NOT EXISTS (SELECT 1 FROM corral.processes p WHERE p.id = i.owner AND p.is_machine)
         ORDER BY i.position`,
        [found.id],
      );
      const applying = await applyingIn(within, found.id);
      return { ok: true, fleet: recordOf(await rowOf(this.#scope, fleet, within)), running, applying };
    });
    // Its owner may have died between the commit and its line.
    if (taken.ok) for (const { index, attempt, run } of taken.applying) await begun?.add({ index, attempt, run });
    return taken;
  }

  async retryFailed(fleet: string): Promise<number> {
    const { db } = this.#scope;
    const id = await this.idOf(fleet);
    for (let retried = 0; ; ) {
      const some = await db.transaction((within) => retrySome(within, id));
      retried += some;
      if (some > 0) continue;
      await this.#begun.of(fleet)?.compare(db, id);
      return retried;
    }
  }

  async fenced(fleet: string, { index, attempt }: FencedItem): Promise<Taken> {
    return await (await this.queue(fleet)).requeue(index, attempt, 0, "withdrawn");
  }

  async pause(fleet: string, why: string): Promise<boolean> {
    await this.#writes.flushed();
    const { db, project, self } = this.#scope;
    return await db.transaction(async (within, again) => {
      const paused = await within.query(
        `UPDATE corral.fleets SET state = 'paused', owner = NULL, why = $1, agreement = NULL
         WHERE project = $2 AND name = $3 AND ((state = 'running' AND owner = $4) OR ($5 AND state = 'paused' AND why = $1))
         RETURNING id`,
        [why, project, fleet, self, again],
      );
      return paused.length === 1;
    });
  }

  async end(fleet: string): Promise<FleetState | null> {
    await this.#writes.flushed();
    const { db, self, now } = this.#scope;
    return await db.transaction(async (within, again) => {
      await within.query("SELECT 1 FROM corral.fleets WHERE name = $1 FOR UPDATE", [fleet]);
      const row = await rowOf(this.#scope, fleet, within);
      if (again && row.owner === null && row.ended_at !== null) return row.state === "cancelled" ? "cancelled" : "done";
      const ended = endOf(row, self);
      if (ended === null) return null;
      await within.query(
        `UPDATE corral.fleets SET state = $1, owner = NULL, agreement = NULL, ended_at = coalesce($2::bigint, corral.now_ms())
         WHERE id = $3`,
        [ended, now(), row.id],
      );
      return ended;
    });
  }

  async endCacheKeys(fleet: string, { mark, valid }: Parameters<FleetStore["endCacheKeys"]>[1]): Promise<void> {
    await this.#writes.flushed();
    await this.#scope.db.query(
      `UPDATE corral.items SET cache_key = CASE WHEN $1 THEN substr(cache_key, $2) END
       WHERE fleet = $3 AND state = 'done' AND status = 'succeeded' AND starts_with(cache_key, $4)`,
      [valid, mark.length + 1, await this.idOf(fleet), mark],
    );
  }

  override async *failed(fleet: string): AsyncGenerator<ItemRequest, void, undefined> {
    const id = await this.idOf(fleet);
    // Their requests are asked for to run them again, maybe in another fleet.
    await this.#begun.asNow(fleet)?.compare(this.#scope.db, id);
    yield* super.failed(fleet);
  }

  async reviewed(items: readonly Reviewed[]): Promise<readonly Reviewed[]> {
    await this.#writes.flushed();
    return await this.#scope.db.transaction(async (within) => {
      const unsettled: Reviewed[] = [];
      for (const one of items) {
        await recordReview(this.#scope, within, one);
        if (await isUnsettled(this.#scope, within, one)) unsettled.push(one);
      }
      return unsettled;
    });
  }

  protected async flushed(): Promise<void> {
    await this.#writes.flushed();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writes.close();
    await this.#lease[Symbol.asyncDispose]();
    await this.#scope.db[Symbol.asyncDispose]();
  }
}

/**
 * Opens the fleets of a project in a PostgreSQL database. They belong to a state directory, known by its key: what their items
 * changed waits there, and another one would take it for decided. @throws QueueError if it does not answer, refuses, or is newer
 */
export async function openQueue(
  url: string,
  stateDir: string,
  projectDir: string,
  away: WhileAway | null = null,
): Promise<PostgresStore> {
  const self = currentOwner();
  const machine = self.machine.replace(/(?<=.)@.*/, "");
  const key = await loadSealKey(stateDir);
  const project = createHmac("sha256", key).update(["queue", machine, projectDir].join("\0")).digest("hex");
  const asked = (whether: typeof isDead) => (name: string) => {
    const owner = parseOwner(processOf(name));
    return owner !== null && whether(owner, self);
  };
  return await PostgresStore.open(await connectServer(url, SCHEMA, { ...PERSISTENCE, away }), {
    project,
    self: newStoreOwner(formatOwner(self)),
    database: serverText(url),
    begunDir: projectPaths(stateDir, projectDir).begun,
    isDead: asked(isDead),
    isAlive: asked(isAlive),
  });
}

export interface ExaminedQueue {
  readonly detail: string;
  /** What its administrator should change, as sentences. */
  readonly warnings: readonly string[];
}

/** What a PostgreSQL server says of itself. @throws QueueError if it does not answer, refuses, or is newer */
export async function examineQueue(url: string): Promise<ExaminedQueue> {
  await using db = await connectServer(url);
  const [row] = await db.query<{
    version: string;
    tls: boolean;
    corral: boolean;
    vacuums: boolean;
    prepares: boolean;
    own: string;
  }>(
    `SELECT current_setting('server_version') AS version, to_regclass('corral.version') IS NOT NULL AS corral,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls,
       current_setting('autovacuum')::boolean AS vacuums, current_setting('max_prepared_transactions')::integer > 0 AS prepares,
       coalesce((SELECT string_agg(DISTINCT split_part(c, '=', 1), ', ') FROM pg_db_role_setting s, unnest(s.setconfig) AS c
         WHERE s.setrole = (SELECT oid FROM pg_roles WHERE rolname = session_user)
           AND split_part(c, '=', 1) NOT IN ('search_path', 'enable_seqscan', 'jit')), '') AS own`,
  );
  const { version = "", tls = false, corral = false, vacuums = true, prepares = false, own = "" } = row ?? {};
  const unlimited = corral ? await db.query<{ rolname: string }>(UNLIMITED) : [];
  const names = unlimited.map(({ rolname }) => rolname).join(", ");
  return {
    detail: `PostgreSQL ${version}, ${tls ? "over TLS" : "without TLS"}, ${corral ? "with Corral's tables" : "without Corral's tables: the first fleet makes them"}`,
    warnings: [
      ...(isOpenToOthers(url)
        ? ["no TLS: who can reach the network between can read and change all. Use sslmode=verify-full"]
        : []),
      ...(vacuums
        ? []
        : ["autovacuum is off: the disk fills with what was removed or rolled back. Set autovacuum = on"]),
      ...(prepares
        ? ["max_prepared_transactions is not 0: a machine could leave one that Corral cannot end. Set it to 0"]
        : []),
      ...(own === ""
        ? []
        : [`this user has settings of its own (${own}), of which Corral uses no others than it sets itself`]),
      ...(names === ""
        ? []
        : [`machines may take all connections: run ALTER ROLE … CONNECTION LIMIT 50 for the role ${names}`]),
    ],
  };
}

/** Roles of machines that may take all connections. Those of coordinators own the tables. */
const UNLIMITED = `
  SELECT rolname FROM pg_roles
  WHERE rolcanlogin AND NOT rolsuper AND rolconnlimit < 0
    AND has_function_privilege(oid, 'corral.machine_claim(text, text[], text[])', 'EXECUTE')
    AND NOT pg_has_role(oid, (SELECT relowner FROM pg_class WHERE oid = 'corral.version'::regclass), 'MEMBER')
  ORDER BY rolname LIMIT 10`;
