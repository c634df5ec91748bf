import { setTimeout as sleep } from "node:timers/promises";
import type { ItemRequest } from "../model/item.ts";
import type { DeclaredOutput, LoadedItems, LoadOptions, LoadProblem } from "../model/store.ts";
import { collided, duplicateKey, type RequestRow, requestBatches } from "../stored/request-batches.ts";
import { type FleetRow, outputKey, pathOf } from "../stored/rows.ts";
import type { Database } from "./database.ts";
import { deleteOutputs, discardLoading, PAUSE_MS, rowOf } from "./fleets.ts";

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
