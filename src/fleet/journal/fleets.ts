import { setTimeout as sleep } from "node:timers/promises";
import type { ItemRequest } from "../model/item.ts";
import type { ItemCounts } from "../model/queue.ts";
import type { ApplyingItem, DeclaredOutput, LoadedItems, LoadOptions, LoadProblem } from "../model/store.ts";
import { readStatement, SQLITE } from "../stored/fleet-reads.ts";
import {
  type ApplyingRow,
  applyingFrom,
  collided,
  duplicateKey,
  type FleetRow,
  itemCounts,
  outputKey,
  pathOf,
  type RequestRow,
  requestBatches,
} from "../stored/rows.ts";
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

/**
 * Reads all items of a fleet into the journal, one batch in memory at a time, in ascending order of their index. The fleet
 * may run only when all items are loaded and do not collide. If loading fails, nothing is left of the fleet.
 */
export async function loadItems<Collisions>(
  db: Database,
  name: string,
  items: AsyncIterable<ItemRequest>,
  { collisionsIn, signal }: LoadOptions<Collisions>,
): Promise<LoadedItems<Collisions>> {
  const fleet = rowOf(db, name);
  if (fleet.state !== "loading") throw new Error(`fleet ${name} is already loaded: it is ${fleet.state}`);
  try {
    const problem =
      (await insertAll(db, fleet, items, signal)) ?? collided(await collisionsIn(sortedOutputs(db, fleet.id)));
    if (problem !== null) {
      await discardLoading(db, name);
      return { ok: false, problem };
    }
    await deleteOutputs(db, fleet.id);
    return { ok: true, total: beginRunning(db, fleet) };
  } catch (error) {
    // The first error is reported. A fleet that could not be deleted stays `loading` and cannot run.
    await discardLoading(db, name).catch(() => {});
    throw error;
  }
}

async function insertAll(
  db: Database,
  { id }: FleetRow,
  items: AsyncIterable<ItemRequest>,
  signal: AbortSignal | undefined,
): Promise<LoadProblem<never> | null> {
  for await (const batch of requestBatches(items, signal)) {
    if (!batch.ok) return batch.problem;
    const duplicate = insert(db, id, batch.rows);
    if (duplicate !== null) return duplicate;
    await sleep(PAUSE_MS);
  }
  return null;
}

/** Null if the whole batch was inserted; otherwise the problem, and nothing was inserted. */
function insert(db: Database, fleet: number, batch: readonly RequestRow[]): LoadProblem<never> | null {
  return db.transaction(() => {
    for (const { request, json } of batch) {
      const item = db.get<{ id: number }>(
        "INSERT INTO items (fleet, position, key) VALUES (?, ?, ?) ON CONFLICT (fleet, key) DO NOTHING RETURNING id",
        fleet,
        request.index,
        request.key,
      );
      if (item === undefined) return duplicateOf(db, fleet, request);
      db.run("INSERT INTO requests (item, json) VALUES (?, ?)", item.id, json);
      for (const path of request.allowWrite ?? [])
        db.run("INSERT INTO outputs (fleet, path, item) VALUES (?, ?, ?)", fleet, outputKey(path), item.id);
    }
    db.run("UPDATE fleets SET total = total + ? WHERE id = ?", batch.length, fleet);
    return null;
  });
}

function duplicateOf(db: Database, fleet: number, { key, place }: ItemRequest): LoadProblem<never> {
  const first = db.get<{ json: string }>(
    "SELECT json FROM requests WHERE item = (SELECT id FROM items WHERE fleet = ? AND key = ?)",
    fleet,
    key,
  );
  return duplicateKey(first?.json, { key, place });
}

/** Makes the fleet ready to run. It is on disk with all of its items when this returns. */
function beginRunning(db: Database, { id, name, owner }: FleetRow): number {
  return db.durably(() => {
    const began = db.run(
      "UPDATE fleets SET state = 'running' WHERE id = ? AND state = 'loading' AND owner IS ?",
      id,
      owner,
    );
    if (began === 0) throw new Error(`fleet ${name} was removed while its items were loaded`);
    return rowOf(db, name).total;
  });
}

/** All paths that a fleet's items may write, sorted by components. SQLite sorts large sets on disk. */
async function* sortedOutputs(db: Database, fleet: number): AsyncGenerator<DeclaredOutput, void, undefined> {
  const rows = db.each<{ path: Uint8Array; key: string }>(
    "SELECT path, key FROM outputs JOIN items ON items.id = outputs.item WHERE outputs.fleet = ? ORDER BY path, position",
    fleet,
  );
  for (const { path, key } of rows) yield { path: pathOf(path), key };
}
