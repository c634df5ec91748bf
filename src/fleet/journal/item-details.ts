import type { ItemRequest } from "../model/item.ts";
import type { EarlierAttempt, ItemFilter, ItemLog, ListedItem, StoredItem } from "../model/stored-item.ts";
import { type ResultRow, resultFrom } from "../stored/result-row.ts";
import { streamsFrom } from "../stored/stream-encoding.ts";
import type { Database } from "./database.ts";
import { COLUMNS, JOINED, pages } from "./results.ts";

/** In the order of the manifest, beginning after the item with this index. */
export function listedItems(
  db: Database,
  fleet: number,
  { state, status, search, failed = false, alike }: ItemFilter,
  { after, limit }: { readonly after: number; readonly limit: number },
): ListedItem[] {
  const terms: readonly (readonly [string, string | number | undefined])[] = [
    ["state = ?", state],
    ["status = ?", status],
    ["instr(key, ?) > 0", search],
    // In words that SQLite knows ahead, for the index of failed items.
    ["failed = 1 AND ?", failed || alike !== undefined ? 1 : undefined],
    ["(status, code, cause) = (SELECT status, code, cause FROM items WHERE fleet = ?1 AND key = ?)", alike],
  ];
  const given = terms.flatMap(([term, value]) => (value === undefined ? [] : [[term, value] as const]));
  const index = search !== undefined ? "INDEXED BY items_search" : alike !== undefined ? "INDEXED BY items_failed" : "";
  const rows = db.all<Omit<ListedItem, "endedAt"> & { readonly endedAt: number | null }>(
    `SELECT position AS "index", key, state, status, nullif(code, '') AS code, attempt, run, ended_at AS endedAt,
            duration_ms AS durationMs, NULL AS machine
     FROM items ${index}
     WHERE fleet = ?1 AND position > ? ${given.map(([term]) => `AND ${term}`).join(" ")} ORDER BY position LIMIT ?`,
    ...[fleet, after, ...given.map(([, value]) => value), limit],
  );
  return rows.map((row) => ({ ...row, endedAt: row.endedAt === null ? null : new Date(row.endedAt).toISOString() }));
}

interface Blobs {
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
}

export function itemOf(db: Database, fleet: number, key: string): StoredItem | null {
  const row = db.get<ResultRow & Blobs & { id: number; state: StoredItem["state"]; request: string }>(
    `SELECT ${COLUMNS}, items.id, items.state, requests.json AS request, stdout, stderr
     FROM ${JOINED} LEFT JOIN streams ON streams.item = items.id WHERE fleet = ? AND key = ?`,
    ...[fleet, key],
  );
  if (row === undefined) return null;
  const result = row.status === null ? null : resultFrom(row);
  const attempts = db.all<{ json: string }>(
    // Of an item that waits or runs again, the result is still that of before.
    `SELECT json FROM attempts WHERE item = ?
       AND attempt <> ${row.state === "done" ? "?" : "(SELECT max(attempt) FROM attempts WHERE item = ?)"} ORDER BY attempt DESC`,
    ...[row.id, row.state === "done" ? row.attempt : row.id],
  );
  return {
    state: row.state,
    request: JSON.parse(row.request) as ItemRequest,
    result,
    streams: streamsFrom(row, result?.output),
    machine: null,
    attempts: attempts.map(({ json }) => JSON.parse(json) as EarlierAttempt),
  };
}

export function keysOf(db: Database, fleet: number, limit: number): string[] {
  return db.all<{ key: string }>("SELECT key FROM items WHERE fleet = ? LIMIT ?", fleet, limit).map(({ key }) => key);
}

/** Pages are small: each item may have two long streams. */
const PAGE = 50;

export function* logsOf(db: Database, fleet: number, failed: boolean): Generator<ItemLog, undefined, undefined> {
  const rows = pages<ResultRow & Blobs>((after) =>
    db.all(
      `SELECT ${COLUMNS}, stdout, stderr FROM ${JOINED} JOIN streams ON streams.item = items.id
       WHERE fleet = ? AND position > ? AND status IS NOT NULL ${failed ? "AND failed = 1" : ""} ORDER BY position LIMIT ?`,
      ...[fleet, after, PAGE],
    ),
  );
  for (const row of rows) {
    const { key, status, exitCode, output } = resultFrom(row);
    yield { key, status, exitCode, ...streamsFrom(row, output) };
  }
}
