import { randomBytes } from "node:crypto";
import type { ItemResult, Reviewed } from "../model/item.ts";
import { type ItemCounts, QueueError } from "../model/queue.ts";
import type { ApplyingItem } from "../model/store.ts";
import { ACTIVE, POSTGRES, readStatement } from "../stored/fleet-reads.ts";
import { type ApplyingRow, applyingFrom, type FleetRow, itemCounts, reviewedResult } from "../stored/rows.ts";
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

export async function isUnsettled(
  { project }: Scope,
  db: Statements,
  { fleet, item, run }: Reviewed,
): Promise<boolean> {
  const rows = await db.query(
    `SELECT 1 FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.${ACTIVE}`,
    [project, fleet, item, run],
  );
  return rows.length > 0;
}

/** An item that is no longer pending stays as it is, so the same may be recorded twice. */
export async function recordReview(
  { project }: Scope,
  db: Statements,
  { fleet, item, run, counts }: Reviewed,
): Promise<void> {
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

/** On this machine its process counts; if that is not visible, its lease. */
export async function hasOwnerEnded({ isDead, isAlive }: Scope, db: Statements, owner: string): Promise<boolean> {
  if (isDead(owner)) return true;
  if (isAlive(owner)) return false;
  const living = await db.query("SELECT 1 FROM corral.processes WHERE id = $1 AND lease_until > corral.now_ms()", [
    owner,
  ]);
  return living.length === 0;
}

/** Those whose owner died when their effect had begun. */
export async function applyingIn(db: Statements, fleet: number): Promise<ApplyingItem[]> {
  const rows = await db.query<ApplyingRow>(
    `SELECT i.position AS "index", i.key, i.attempt, i.run, t.json, t.cache_key AS "cacheKey", t.is_printed AS printed,
       t.stdout, t.stderr, r.fields
     FROM corral.items i JOIN corral.intents t USING (fleet, position) LEFT JOIN corral.requests r USING (fleet, position)
     WHERE i.fleet = $1 AND i.state = 'applying' ORDER BY i.position`,
    [fleet],
  );
  return rows.map(applyingFrom);
}
