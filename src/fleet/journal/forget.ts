import { setTimeout as sleep } from "node:timers/promises";
import type { Database } from "./database.ts";
import type { FleetRow } from "./fleets.ts";

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
  const fleet = db.get<FleetRow>(`SELECT * FROM fleets WHERE name = ? AND ${which}`, name);
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
