import type { Database } from "./database.ts";

/** Where an item may write, and whose that is. */
export interface Output {
  /** A virtual path, as it was asked for. */
  readonly path: string;
  readonly key: string;
}

/**
 * Bytes that sort as paths do by their components, with what lies below a path right after it: `/a`, `/a/c`, `/a-b`. Each
 * component ends with a zero byte, which no path has in it. A slash too many says nothing.
 */
export function outputKey(path: string): Buffer {
  const parts = path.split("/").filter((part) => part !== "");
  return Buffer.from(parts.map((part) => `${part}\0`).join(""));
}

/** All that a fleet's items may write, by components. SQLite sorts it, on the disk where it is much. */
export function* sortedOutputs(db: Database, fleet: number): Generator<Output, undefined, undefined> {
  const rows = db.each<{ path: Uint8Array; key: string }>(
    "SELECT path, key FROM outputs JOIN items ON items.id = outputs.item WHERE outputs.fleet = ? ORDER BY path, position",
    fleet,
  );
  for (const { path, key } of rows) yield { path: pathOf(path), key };
}

function pathOf(bytes: Uint8Array): string {
  return `/${Buffer.from(bytes).toString("utf8").split("\0").slice(0, -1).join("/")}`;
}
