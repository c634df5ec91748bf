import { setTimeout as sleep } from "node:timers/promises";
import type { ItemCounts } from "../model/queue.ts";
import type { ApplyingItem } from "../model/store.ts";
import { readStatement, SQLITE } from "../stored/dialects.ts";
import { type ApplyingRow, applyingFrom, type FleetRow, itemCounts } from "../stored/rows.ts";
import type { Database } from "./database.ts";

/** Between two chunks, for other processes: SQLite has no queue of waiting writers. */
export const PAUSE_MS = 1;

/** Deletes a fleet whose loading did not finish. False if there is none. */
export async function discardLoading(db: Database, name: string): Promise<boolean> {
  return await forget(db, name, "state = 'loading'");
}

/** Deletes an ended fleet with its items and results. False if there is none. */
export async function forgetEnded(db: Database, name: string): Promise<boolean> {
  return await forget(db, name, "state IN ('done', 'cancelled') AND owner IS NULL AND ended_at IS NOT NULL");
}

/** If it is interrupted, the fleet has fewer items and can be deleted again. */
async function forget(db: Database, name: string, which: string): Promise<boolean> {
  const fleet = db.get<{ id: number }>(`SELECT id FROM fleets WHERE name = ? AND ${which}`, name);
  if (fleet === undefined) return false;
  await deleteOutputs(db, fleet.id);
  await inChunks(db, () => {
    const some = "SELECT id FROM items WHERE fleet = ? LIMIT 5000";
    db.run(`DELETE FROM requests WHERE item IN (${some})`, fleet.id);
    for (const table of ["results", "streams", "attempts", "intents"])
      db.run(`DELETE FROM ${table} WHERE item IN (${some})`, fleet.id);
    return db.run(`DELETE FROM items WHERE id IN (${some})`, fleet.id);
  });
  return db.durably(() => {
    const forgotten = db.run(`DELETE FROM fleets WHERE id = ? AND ${which}`, fleet.id) > 0;
    if (forgotten) db.run("DELETE FROM tallies WHERE fleet = ?", fleet.id);
    return forgotten;
  });
}

export async function deleteOutputs(db: Database, fleet: number): Promise<void> {
  await inChunks(db, () =>
    db.run("DELETE FROM outputs WHERE rowid IN (SELECT rowid FROM outputs WHERE fleet = ? LIMIT 10000)", fleet),
  );
}

/** Repeats `change` until it changes nothing. Each chunk is its own transaction, so that other processes can write. */
async function inChunks(db: Database, change: () => number): Promise<void> {
  while (db.transaction(change) > 0) await sleep(PAUSE_MS);
}

const FLEETS = readStatement(SQLITE, "fleets");

export function fleetRow(db: Database, name: string): FleetRow | undefined {
  return db.get<FleetRow>(`${FLEETS} AND f.name = ?2`, "", name);
}

/** For ids that this journal returned. @throws Error if the fleet does not exist. */
export function rowOf(db: Database, name: string): FleetRow {
  const row = fleetRow(db, name);
  if (row === undefined) throw new Error(`there is no fleet ${name} in this journal`);
  return row;
}

/** For the number of a fleet in the database. @throws Error if it does not exist. */
export function countsOf(db: Database, fleet: number): ItemCounts {
  const row = db.get<FleetRow>(`${FLEETS} AND f.id = ?2`, "", fleet);
  if (row === undefined) throw new Error("the fleet was removed from the journal");
  return itemCounts(row);
}

/** Those whose owner died when their effect had begun. */
export function applyingIn(db: Database, fleet: number): ApplyingItem[] {
  const rows = db.all<ApplyingRow>(
    `SELECT position AS "index", key, attempt, run, intents.json, intents.cache_key AS cacheKey, printed, stdout, stderr,
            requests.json ->> '$.fields' AS fields
     FROM items JOIN intents ON intents.item = items.id LEFT JOIN requests ON requests.item = items.id
     WHERE fleet = ? AND state = 'running' ORDER BY position`,
    fleet,
  );
  return rows.map(applyingFrom);
}
