import type { ItemResult } from "../model/item.ts";
import type { ApplyingItem, FencedItem, TakenOver } from "../model/store.ts";
import { unknownFleet, whyNotTaken } from "../stored/ownership.ts";
import { streamsFrom } from "../stored/stream-encoding.ts";
import type { Database } from "./database.ts";
import { fleetRow, recordOf, rowOf } from "./fleets.ts";

interface TakeOverOptions {
  readonly self: string;
  readonly isDead: (owner: string) => boolean;
  /** To retry items: a fleet that is done can be taken over too, and one that is cancelled cannot. */
  readonly retries?: boolean;
}

/**
 * Makes `self` the owner of a fleet that no process runs, atomically, so that only one of two concurrent attempts succeeds. A
 * cancelled fleet that has not ended can be taken over too and stays cancelled, so that its owner can end it.
 */
export function takeOverFleet(
  db: Database,
  name: string,
  { self, isDead, retries = false }: TakeOverOptions,
): TakenOver {
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
    return { ok: true, fleet: recordOf(db, rowOf(db, name)), running, applying: applyingIn(db, fleet.id) };
  });
}

interface ApplyingRow extends Omit<ApplyingItem, "intent"> {
  readonly json: string;
  readonly cacheKey: string | null;
  readonly printed: number;
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
  readonly fields: string | null;
}

function applyingIn(db: Database, fleet: number): ApplyingItem[] {
  const rows = db.all<ApplyingRow>(
    `SELECT position AS "index", key, attempt, run, intents.json, intents.cache_key AS cacheKey, printed, stdout, stderr,
            requests.json ->> '$.fields' AS fields
     FROM items JOIN intents ON intents.item = items.id LEFT JOIN requests ON requests.item = items.id
     WHERE fleet = ? AND state = 'running' ORDER BY position`,
    fleet,
  );
  return rows.map(({ json, cacheKey, printed, fields, stdout, stderr, ...item }) => {
    const kept = JSON.parse(json) as Omit<ItemResult, "fields">;
    const result: ItemResult = { ...kept, fields: JSON.parse(fields ?? "{}") as ItemResult["fields"] };
    const streams = printed === 1 ? streamsFrom({ stdout, stderr }, result.output) : null;
    return { ...item, intent: { result, cacheKey, streams } };
  });
}
