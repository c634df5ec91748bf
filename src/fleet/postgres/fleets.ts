import { randomBytes } from "node:crypto";
import type { FleetRecord, FleetState } from "../model/fleet-record.ts";
import type { FleetSpec } from "../model/item.ts";
import type { ItemCounts } from "../model/queue.ts";
import { QueueError } from "../model/queue-error.ts";
import type { Statements } from "./connection.ts";
import type { Scope } from "./scope.ts";
import { ACTIVE } from "./states.ts";
import { processOf } from "./store-owner.ts";

export interface FleetRow extends Pick<FleetRecord, "owner" | "why">, ItemCounts {
  readonly id: number;
  readonly name: string;
  readonly spec: string;
  readonly state: Exclude<FleetState, "pending">;
  readonly created_at: number;
  readonly ended_at: number | null;
  /** Whether machines may run its items. */
  readonly is_shared: boolean;
}

/** Its cost does not depend on the number of items: results are tallied as they come, and few items run at once. */
const ROWS = `
  SELECT f.id, f.name, f.spec, f.state, f.owner, f.why, f.created_at, f.ended_at, f.total, f.needs IS NOT NULL AS is_shared,
         t.done, t.failed, t.pending, r.running, f.total - t.done - r.running AS queued
  FROM corral.fleets f
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(count), 0)::int AS done, coalesce(sum(count * failed), 0)::int AS failed,
           coalesce(sum(count) FILTER (WHERE status = 'pending'), 0)::int AS pending
    FROM corral.tallies WHERE fleet = f.id) t
  CROSS JOIN LATERAL (
    SELECT count(*)::int AS running FROM corral.items
    WHERE fleet = f.id AND ${ACTIVE}) r`;

/** Creates a fleet in the state `loading` and returns its id. */
export async function createFleet({ db, project, self, now }: Scope, spec: FleetSpec): Promise<string> {
  const name = randomBytes(6).toString("hex");
  const machines = spec.machines ?? null;
  await db.query(
    `INSERT INTO corral.fleets (name, project, spec, state, owner, created_at, needs, priority, weight)
     VALUES ($1, $2, $3, 'loading', $4, coalesce($5::bigint, corral.now_ms()), $6, $7, $8) ON CONFLICT (name) DO NOTHING`,
    [
      name,
      project,
      JSON.stringify(spec),
      self,
      now(),
      machines?.needs ?? null,
      machines?.priority ?? 0,
      machines?.weight ?? 1,
    ],
  );
  return name;
}

export async function fleetRow({ project }: Scope, name: string, db: Statements): Promise<FleetRow | undefined> {
  return (await db.query<FleetRow>(`${ROWS} WHERE f.project = $1 AND f.name = $2`, [project, name]))[0];
}

/** For ids that this store returned. @throws Error if the fleet does not exist */
export async function rowOf(scope: Scope, name: string, db: Statements = scope.db): Promise<FleetRow> {
  const row = await fleetRow(scope, name, db);
  if (row === undefined) throw new Error(`there is no fleet ${name} in this project`);
  return row;
}

/** The number of a fleet in the database. @throws Error if it does not exist */
export async function idOf({ db, project }: Scope, name: string): Promise<number> {
  const [row] = await db.query<{ id: number }>("SELECT id FROM corral.fleets WHERE project = $1 AND name = $2", [
    project,
    name,
  ]);
  if (row === undefined) throw new Error(`there is no fleet ${name} in this project`);
  return row.id;
}

export async function countsOf(db: Statements, id: number): Promise<FleetRow> {
  const [row] = await db.query<FleetRow>(`${ROWS} WHERE f.id = $1`, [id]);
  if (row === undefined) throw new QueueError("the fleet was removed from the queue");
  return row;
}

/** The newest first. */
export async function newestFleets({ db, project }: Scope, limit: number): Promise<FleetRecord[]> {
  const rows = await db.query<FleetRow>(`${ROWS} WHERE f.project = $1 ORDER BY f.id DESC LIMIT $2`, [project, limit]);
  return rows.map(recordOf);
}

/** Those whose ids begin with `prefix`, the newest first. */
export async function fleetsLike({ db, project }: Scope, prefix: string, limit: number): Promise<FleetRecord[]> {
  const sql = `${ROWS} WHERE f.project = $1 AND starts_with(f.name, $2) ORDER BY f.id DESC LIMIT $3`;
  return (await db.query<FleetRow>(sql, [project, prefix, limit])).map(recordOf);
}

export function recordOf(row: FleetRow): FleetRecord {
  return {
    id: row.name,
    spec: JSON.parse(row.spec) as FleetSpec,
    state: row.state === "done" && row.pending > 0 ? "pending" : row.state,
    owner: row.owner === null ? null : processOf(row.owner),
    createdAt: new Date(row.created_at).toISOString(),
    endedAt: row.ended_at === null ? null : new Date(row.ended_at).toISOString(),
    why: row.why,
    counts: itemCounts(row),
  };
}

export function itemCounts({ total, queued, running, done, failed, pending }: ItemCounts): ItemCounts {
  return { total, queued, running, done, failed, pending };
}

/** Records that no process runs the fleet until it is resumed. False if this process did not run it. */
export async function pauseFleet({ db, project, self }: Scope, name: string, why: string): Promise<boolean> {
  return await db.transaction(async (within, again) => {
    const paused = await within.query(
      `UPDATE corral.fleets SET state = 'paused', owner = NULL, why = $1, agreement = NULL
       WHERE project = $2 AND name = $3 AND ((state = 'running' AND owner = $4) OR ($5 AND state = 'paused' AND why = $1))
       RETURNING id`,
      [why, project, name, self, again],
    );
    return paused.length === 1;
  });
}

/**
 * Records the end of a fleet whose items have all ended: `done`, or `cancelled` if it was cancelled. Null if items are left,
 * or if another process runs it.
 */
export async function endFleet(scope: Scope, name: string): Promise<FleetState | null> {
  const { db, self, now } = scope;
  return await db.transaction(async (within, again) => {
    await within.query("SELECT 1 FROM corral.fleets WHERE name = $1 FOR UPDATE", [name]);
    const { id, owner, queued, running, state, ended_at } = await rowOf(scope, name, within);
    const ended = state === "cancelled" ? "cancelled" : "done";
    if (again && owner === null && ended_at !== null) return ended;
    if (owner !== self || queued + running > 0 || !["running", "cancelled"].includes(state)) return null;
    await within.query(
      `UPDATE corral.fleets SET state = $1, owner = NULL, agreement = NULL, ended_at = coalesce($2::bigint, corral.now_ms())
       WHERE id = $3`,
      [ended, now(), id],
    );
    return ended;
  });
}
