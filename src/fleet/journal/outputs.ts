import type { Output } from "../model/store.ts";
import type { Database } from "./database.ts";

/**
 * Bytes that sort paths by components, so that paths below a path follow it directly: `/a`, `/a/c`, `/a-b`. Each component
 * ends with a zero byte, which no path contains. Extra slashes are ignored.
 */
export function outputKey(path: string): Buffer {
  const parts = path.split("/").filter((part) => part !== "");
  return Buffer.from(parts.map((part) => `${part}\0`).join(""));
}

/** All paths that a fleet's items may write, sorted by components. SQLite sorts large sets on disk. */
export async function* sortedOutputs(db: Database, fleet: number): AsyncGenerator<Output, void, undefined> {
  const rows = db.each<{ path: Uint8Array; key: string }>(
    "SELECT path, key FROM outputs JOIN items ON items.id = outputs.item WHERE outputs.fleet = ? ORDER BY path, position",
    fleet,
  );
  for (const { path, key } of rows) yield { path: pathOf(path), key };
}

function pathOf(bytes: Uint8Array): string {
  return `/${Buffer.from(bytes).toString("utf8").split("\0").slice(0, -1).join("/")}`;
}
