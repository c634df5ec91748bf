import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { FleetSpec } from "../model/item.ts";
import type { ItemCounts } from "../model/queue.ts";
import {
  type ApplyingItem,
  type FencedItem,
  type FleetState,
  type TakenOver,
  unknownFleet,
  whyNotTaken,
} from "../model/store.ts";
import { readStatement, SQLITE } from "../stored/dialects.ts";
import { type ApplyingRow, applyingFrom, type FleetRow, itemCounts, recordOf } from "../stored/rows.ts";
import type { Database } from "./database.ts";

/** A pause between two chunks, so that other processes can write. */
const PAUSE_MS = 1;

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
    const { queued, running } = itemCounts(row);
    if (row.owner !== owner || queued + running > 0 || !["running", "cancelled"].includes(row.state)) return null;
    const state = row.state === "cancelled" ? "cancelled" : "done";
    db.run("UPDATE fleets SET state = ?, owner = NULL, ended_at = ? WHERE id = ?", state, nowMs, row.id);
    return state;
  });
}

interface TakeOverOptions {
  readonly self: string;
  readonly isDead: (owner: string) => boolean;
  /** To retry items: a fleet that is done can be taken over too, and one that is cancelled cannot. */
  readonly retries: boolean;
}

/**
 * Makes `self` the owner of a fleet that no process runs, atomically, so that only one of two concurrent attempts succeeds. A
 * cancelled fleet that has not ended can be taken over too and stays cancelled, so that its owner can end it.
 */
export function takeOverFleet(db: Database, name: string, { self, isDead, retries }: TakeOverOptions): TakenOver {
  return db.transaction(() => {
    const fleet = fleetRow(db, name);
    if (fleet === undefined) return unknownFleet(name);
    const refusal = whyNotTaken(fleet, isDead, retries);
    if (refusal !== null) return refusal;
    db.run(
      `UPDATE fleets SET owner = ?, why = iif(state = 'cancelled', why, NULL),
         state = iif(state = 'cancelled', 'cancelled', 'running'), ended_at = NULL WHERE id = ?`,
      self,
      fleet.id,
    );
    // At most as many as the dead owner ran at once.
    const running = db.all<FencedItem>(
      `SELECT position AS "index", key, attempt, run, cell, owner FROM items
       WHERE fleet = ? AND state = 'running' AND NOT EXISTS (SELECT 1 FROM intents WHERE item = items.id)
       ORDER BY position`,
      fleet.id,
    );
    return { ok: true, fleet: recordOf(rowOf(db, name)), running, applying: applyingIn(db, fleet.id) };
  });
}

function applyingIn(db: Database, fleet: number): ApplyingItem[] {
  const rows = db.all<ApplyingRow>(
    `SELECT position AS "index", key, attempt, run, intents.json, intents.cache_key AS cacheKey, printed, stdout, stderr,
            requests.json ->> '$.fields' AS fields
     FROM items JOIN intents ON intents.item = items.id LEFT JOIN requests ON requests.item = items.id
     WHERE fleet = ? AND state = 'running' ORDER BY position`,
    fleet,
  );
  return rows.map(applyingFrom);
}

export function endCacheKeys(
  db: Database,
  fleet: number,
  { mark, valid }: { readonly mark: string; readonly valid: boolean },
): void {
  db.transaction(() =>
    db.run(
      `UPDATE items SET cache_key = iif(?1, substr(cache_key, ?2), NULL)
       WHERE fleet = ?3 AND state = 'done' AND status = 'succeeded' AND substr(cache_key, 1, ?4) = ?5`,
      ...[valid ? 1 : 0, mark.length + 1, fleet, mark.length, mark],
    ),
  );
}
