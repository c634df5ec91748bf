import type { ItemResult } from "../model/item.ts";
import type { Database } from "./database.ts";

/** An item, of any fleet of the project, that has succeeded with the same worker, policy, image, input and attachments. */
export interface EarlierSuccess {
  readonly fleet: string;
  readonly result: ItemResult;
}

/** The newest of them; null where there is none. The index has the beginnings of keys, which are hashes: it stays small. */
export function earlierSuccess(db: Database, cacheKey: string): EarlierSuccess | null {
  const row = db.get<{ fleet: string; json: string }>(
    `SELECT fleets.name AS fleet, json FROM items
     JOIN results ON results.item = items.id JOIN fleets ON fleets.id = items.fleet
     WHERE substr(cache_key, 1, 16) = substr(?1, 1, 16) AND cache_key = ?1 AND status = 'succeeded'
     ORDER BY items.id DESC LIMIT 1`,
    cacheKey,
  );
  return row === undefined ? null : { fleet: row.fleet, result: JSON.parse(row.json) as ItemResult };
}
