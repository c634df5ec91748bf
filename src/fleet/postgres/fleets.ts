import { randomBytes } from "node:crypto";
import type { FleetSpec, ItemResult, Reviewed } from "../model/item.ts";
import { type ItemCounts, QueueError } from "../model/queue.ts";
import {
  type ApplyingItem,
  type FencedItem,
  type FleetState,
  type TakenOver,
  unknownFleet,
  whyNotTaken,
} from "../model/store.ts";
import { ACTIVE, POSTGRES, readStatement } from "../stored/dialects.ts";
import { type ApplyingRow, applyingFrom, type FleetRow, itemCounts, recordOf, reviewedResult } from "../stored/rows.ts";
import { type Scope, type Statements, tally } from "./connection.ts";

const CHUNK = 5000;
const TABLES = ["requests", "results", "streams", "attempts", "intents", "deliveries", "questions"];

/** Deletes a fleet whose loading did not finish. False if there is none. */
export async function discardLoading(scope: Scope, name: string): Promise<boolean> {
  return await forget(scope, name, "state = 'loading'");
}

/** Deletes an ended fleet with its items and results. False if there is none. */
export async function forgetEnded(scope: Scope, name: string): Promise<boolean> {
  return await forget(scope, name, "state IN ('done', 'cancelled') AND owner IS NULL AND ended_at IS NOT NULL");
}

/** If it is interrupted, the fleet has fewer items and can be deleted again. */
async function forget({ db, project }: Scope, name: string, which: string): Promise<boolean> {
  const [fleet] = await db.query<{ id: number }>(
    `SELECT id FROM corral.fleets WHERE project = $1 AND name = $2 AND ${which}`,
    [project, name],
  );
  if (fleet === undefined) return false;
  await deleteOutputs(db, fleet.id);
  await inChunks(
    async () =>
      await db.transaction(async (within) => {
        const some = await within.query<{ position: number }>(
          "SELECT position FROM corral.items WHERE fleet = $1 LIMIT $2",
          [fleet.id, CHUNK],
        );
        const positions = some.map(({ position }) => position);
        for (const table of [...TABLES, "items"])
          await within.query(`DELETE FROM corral.${table} WHERE fleet = $1 AND position = ANY ($2::int[])`, [
            fleet.id,
            positions,
          ]);
        return positions.length;
      }),
  );
  return await db.transaction(async (within) => {
    const forgotten = await within.query(`DELETE FROM corral.fleets WHERE id = $1 AND ${which} RETURNING id`, [
      fleet.id,
    ]);
    if (forgotten.length === 0) return false;
    for (const table of ["tallies", "refusals"])
      await within.query(`DELETE FROM corral.${table} WHERE fleet = $1`, [fleet.id]);
    return true;
  });
}

export async function deleteOutputs(db: Statements, fleet: number): Promise<void> {
  await inChunks(async () => {
    const gone = await db.query(
      `DELETE FROM corral.outputs WHERE ctid = ANY (ARRAY(SELECT ctid FROM corral.outputs WHERE fleet = $1 LIMIT 10000))
       RETURNING 1`,
      [fleet],
    );
    return gone.length;
  });
}

/** Repeats `change` until it changes nothing. Each chunk is its own transaction, so that none is long. */
async function inChunks(change: () => Promise<number>): Promise<void> {
  while ((await change()) > 0);
}

/**
 * The owner of the fleets that one open store of this process runs. A process that loses a fleet may take it over again, with another
 * store: its earlier run of the fleet is refused like that of any other process.
 */
export function newStoreOwner(process: string): string {
  return `${process}|store-${randomBytes(6).toString("hex")}`;
}

const FLEETS = readStatement(POSTGRES, "fleets");

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
  return (await db.query<FleetRow>(`${FLEETS} AND f.name = $2`, [project, name]))[0];
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

/** Of a fleet of the project by its number. */
export async function countsOf({ db, project }: Scope, id: number): Promise<ItemCounts> {
  const [row] = await db.query<FleetRow>(`${FLEETS} AND f.id = $2`, [project, id]);
  if (row === undefined) throw new QueueError("the fleet was removed from the queue");
  return itemCounts(row);
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
    const row = await rowOf(scope, name, within);
    const { id, owner, state, ended_at } = row;
    const { queued, running } = itemCounts(row);
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

/**
 * Records the decisions on items, all at once. An item that is no longer pending stays as it is, so the same may be recorded twice.
 * Returns those whose run is not settled yet.
 */
export async function recordReviewed(scope: Scope, reviewed: readonly Reviewed[]): Promise<readonly Reviewed[]> {
  return await scope.db.transaction(async (within) => {
    const unsettled: Reviewed[] = [];
    for (const one of reviewed) {
      await record(scope, within, one);
      if (await isUnsettled(scope, within, one)) unsettled.push(one);
    }
    return unsettled;
  });
}

async function isUnsettled({ project }: Scope, db: Statements, { fleet, item, run }: Reviewed): Promise<boolean> {
  const rows = await db.query(
    `SELECT 1 FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.${ACTIVE}`,
    [project, fleet, item, run],
  );
  return rows.length > 0;
}

async function record({ project }: Scope, db: Statements, { fleet, item, run, counts }: Reviewed): Promise<void> {
  const [row] = await db.query<{ fleet: number; code: string; json: string }>(
    `SELECT i.fleet, i.code, r.json FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     JOIN corral.results r ON r.fleet = i.fleet AND r.position = i.position
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.state = 'done' AND i.status = 'pending'
     FOR UPDATE OF i`,
    [project, fleet, item, run],
  );
  if (row === undefined) return;
  const after = reviewedResult(JSON.parse(row.json) as ItemResult, counts);
  const { status, error } = after;
  const at = [row.fleet, item];
  const code = error?.code ?? "";
  await db.query("UPDATE corral.items SET status = $3, code = $4 WHERE fleet = $1 AND position = $2", [
    ...at,
    status,
    code,
  ]);
  await db.query("UPDATE corral.results SET json = $3 WHERE fleet = $1 AND position = $2", [
    ...at,
    JSON.stringify(after),
  ]);
  await tally(db, row.fleet, "pending", row.code, 0, -1);
  await db.query("DELETE FROM corral.tallies WHERE fleet = $1 AND count <= 0", [row.fleet]);
  await tally(db, row.fleet, status, code, 0, 1);
}

/**
 * Makes this process the owner of a fleet that no process runs, atomically, so that only one of two concurrent attempts succeeds.
 * A cancelled fleet that has not ended can be taken over too and stays cancelled, so that its owner can end it. What machines run
 * or delivered stays theirs. `retries`: failed items are to be retried. `check` throws
 * if items must not run again.
 */
export async function takeOverFleet(
  scope: Scope,
  name: string,
  retries: boolean,
  check: (db: Statements, fleet: number) => Promise<void> = async () => {},
): Promise<TakenOver> {
  const { db, project, self } = scope;
  return await db.transaction(async (within, again) => {
    await within.query("SELECT 1 FROM corral.fleets WHERE project = $1 AND name = $2 FOR UPDATE", [project, name]);
    const fleet = await fleetRow(scope, name, within);
    if (fleet === undefined) return unknownFleet(name);
    const hasEnded = fleet.owner === null ? false : await hasOwnerEnded(scope, within, fleet.owner);
    const isFree = (owner: string): boolean => hasEnded || (again && owner === self);
    const refusal = whyNotTaken(fleet, isFree, retries);
    if (refusal !== null) return refusal;
    // No item of a cancelled one runs.
    if (fleet.state !== "cancelled") await check(within, fleet.id);
    await within.query(
      `UPDATE corral.fleets SET owner = $1, why = CASE WHEN state = 'cancelled' THEN why END, agreement = NULL,
         state = CASE WHEN state = 'cancelled' THEN 'cancelled' ELSE 'running' END, ended_at = NULL WHERE id = $2`,
      [self, fleet.id],
    );
    // At most as many as the dead owner ran at once.
    const running = await within.query<FencedItem>(
      `SELECT i.position AS "index", i.key, i.attempt, i.run, i.cell, i.owner FROM corral.items i
       WHERE i.fleet = $1 AND i.state = 'running'
         AND NOT EXISTS (SELECT 1 FROM corral.processes p WHERE p.id = i.owner AND p.is_machine)
       ORDER BY i.position`,
      [fleet.id],
    );
    const applying = await applyingIn(within, fleet.id);
    return { ok: true, fleet: recordOf(await rowOf(scope, name, within)), running, applying };
  });
}

/** On this machine its process counts; if that is not visible, its lease. */
export async function hasOwnerEnded({ isDead, isAlive }: Scope, db: Statements, owner: string): Promise<boolean> {
  if (isDead(owner)) return true;
  if (isAlive(owner)) return false;
  const living = await db.query("SELECT 1 FROM corral.processes WHERE id = $1 AND lease_until > corral.now_ms()", [
    owner,
  ]);
  return living.length === 0;
}

async function applyingIn(db: Statements, fleet: number): Promise<ApplyingItem[]> {
  const rows = await db.query<ApplyingRow>(
    `SELECT i.position AS "index", i.key, i.attempt, i.run, t.json, t.cache_key AS "cacheKey", t.is_printed AS printed,
       t.stdout, t.stderr, r.fields
     FROM corral.items i JOIN corral.intents t USING (fleet, position) LEFT JOIN corral.requests r USING (fleet, position)
     WHERE i.fleet = $1 AND i.state = 'applying' ORDER BY i.position`,
    [fleet],
  );
  return rows.map(applyingFrom);
}

export async function endCacheKeys(
  db: Statements,
  fleet: number,
  { mark, valid }: { readonly mark: string; readonly valid: boolean },
): Promise<void> {
  await db.query(
    `UPDATE corral.items SET cache_key = CASE WHEN $1 THEN substr(cache_key, $2) END
     WHERE fleet = $3 AND state = 'done' AND status = 'succeeded' AND starts_with(cache_key, $4)`,
    [valid, mark.length + 1, fleet, mark],
  );
}
