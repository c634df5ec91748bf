import { randomBytes } from "node:crypto";
import type { FleetRecord, FleetState } from "../model/fleet-record.ts";
import type { FleetSpec } from "../model/item.ts";
import type { ItemCounts } from "../model/queue.ts";
import type { Database } from "./database.ts";

type StoredState = Exclude<FleetState, "pending">;

export interface FleetRow extends Pick<FleetRecord, "owner" | "why"> {
  readonly state: StoredState;
  /** The row's number in the database. */
  readonly id: number;
  readonly name: string;
  readonly spec: string;
  readonly total: number;
  readonly created_at: number;
  readonly ended_at: number | null;
}

/** Creates a fleet in the state `loading` and returns its id. It is on disk when this returns. */
export function createFleet(db: Database, spec: FleetSpec, owner: string, nowMs: number): string {
  const name = randomBytes(6).toString("hex");
  db.durably(() =>
    db.run(
      "INSERT INTO fleets (name, spec, state, owner, created_at) VALUES (?, ?, 'loading', ?, ?)",
      ...[name, JSON.stringify(spec), owner, nowMs],
    ),
  );
  return name;
}

export function fleetRow(db: Database, name: string): FleetRow | undefined {
  return db.get<FleetRow>("SELECT * FROM fleets WHERE name = ?", name);
}

/** For ids that this journal returned. @throws Error if the fleet does not exist. */
export function rowOf(db: Database, name: string): FleetRow {
  const row = fleetRow(db, name);
  if (row === undefined) throw new Error(`there is no fleet ${name} in this journal`);
  return row;
}

/** The newest first. */
export function newestFleets(db: Database, limit: number): FleetRecord[] {
  const rows = db.all<FleetRow>("SELECT * FROM fleets ORDER BY id DESC LIMIT ?", limit);
  return rows.map((row) => recordOf(db, row));
}

/** Those whose ids begin with `prefix`, the newest first. */
export function fleetsLike(db: Database, prefix: string, limit: number): FleetRecord[] {
  const like = "SELECT * FROM fleets WHERE substr(name, 1, ?) = ? ORDER BY id DESC LIMIT ?";
  return db.all<FleetRow>(like, prefix.length, prefix, limit).map((row) => recordOf(db, row));
}

export function recordOf(db: Database, row: FleetRow): FleetRecord {
  const counts = countsOf(db, row);
  return {
    id: row.name,
    spec: JSON.parse(row.spec) as FleetSpec,
    state: row.state === "done" && counts.pending > 0 ? "pending" : row.state,
    owner: row.owner,
    createdAt: new Date(row.created_at).toISOString(),
    endedAt: row.ended_at === null ? null : new Date(row.ended_at).toISOString(),
    why: row.why,
    counts,
  };
}

/** Its cost does not depend on the number of items: results are tallied as they come, and few items run at once. */
export function countsOf(db: Database, { id, total }: Pick<FleetRow, "id" | "total">): ItemCounts {
  const {
    done = 0,
    failed = 0,
    pending = 0,
  } = db.get<{ done: number; failed: number; pending: number }>(
    `SELECT coalesce(sum(count), 0) AS done, coalesce(sum(count * failed), 0) AS failed,
         coalesce(sum(iif(status = 'pending', count, 0)), 0) AS pending FROM tallies WHERE fleet = ?`,
    id,
  ) ?? {};
  const { running = 0 } =
    db.get<{ running: number }>("SELECT count(*) AS running FROM items WHERE fleet = ? AND state = 'running'", id) ??
    {};
  return { total, queued: total - running - done, running, done, failed, pending };
}

/** Records that no process runs the fleet until it is resumed. False if `owner` did not run it. */
export function pauseFleet(db: Database, name: string, owner: string, why: string): boolean {
  const changed = db.durably(() =>
    db.run(
      "UPDATE fleets SET state = 'paused', owner = NULL, why = ? WHERE name = ? AND state = 'running' AND owner = ?",
      ...[why, name, owner],
    ),
  );
  return changed === 1;
}

/**
 * Records the end of a fleet whose items have all ended: `done`, or `cancelled` if it was cancelled. Null if items are left,
 * or if another owner runs it.
 */
export function endFleet(db: Database, name: string, owner: string, nowMs: number): FleetState | null {
  return db.durably(() => {
    const row = rowOf(db, name);
    const { queued, running } = countsOf(db, row);
    if (row.owner !== owner || queued + running > 0 || !["running", "cancelled"].includes(row.state)) return null;
    const state = row.state === "cancelled" ? "cancelled" : "done";
    db.run("UPDATE fleets SET state = ?, owner = NULL, ended_at = ? WHERE id = ?", state, nowMs, row.id);
    return state;
  });
}
