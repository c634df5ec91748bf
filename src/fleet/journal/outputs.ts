import type { Output } from "../model/store.ts";
import { pathOf } from "../stored/output-key.ts";
import type { Database } from "./database.ts";

/** All paths that a fleet's items may write, sorted by components. SQLite sorts large sets on disk. */
export async function* sortedOutputs(db: Database, fleet: number): AsyncGenerator<Output, void, undefined> {
  const rows = db.each<{ path: Uint8Array; key: string }>(
    "SELECT path, key FROM outputs JOIN items ON items.id = outputs.item WHERE outputs.fleet = ? ORDER BY path, position",
    fleet,
  );
  for (const { path, key } of rows) yield { path: pathOf(path), key };
}
