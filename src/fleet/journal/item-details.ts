import type { ItemRequest, ItemResult } from "../model/item.ts";
import type { Database } from "./database.ts";
import { COLUMNS, JOINED, pages, type ResultRow, resultFrom } from "./results.ts";
import { type ItemStreams, streamsFrom } from "./streams.ts";

/** One item with everything that the journal has of it. */
export interface JournalItem {
  readonly state: "queued" | "running" | "done";
  readonly request: ItemRequest;
  /** Null if no attempt has ended. While it is retried, that of the earlier attempt. */
  readonly result: ItemResult | null;
  readonly streams: ItemStreams;
  /** Results before the item was retried in place, without outputs; the newest first. */
  readonly attempts: readonly EarlierAttempt[];
}

/** A result that a retry replaced. */
export type EarlierAttempt = Pick<
  ItemResult,
  "attempt" | "status" | "run" | "exitCode" | "error" | "stderrLine" | "startedAt" | "endedAt" | "durationMs"
>;

/** What one item printed. */
export interface ItemLog extends ItemStreams, Pick<ItemResult, "key" | "status" | "exitCode"> {}

interface Blobs {
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
}

export function itemOf(db: Database, fleet: number, key: string): JournalItem | null {
  const row = db.get<ResultRow & Blobs & { id: number; state: JournalItem["state"]; earlier: number; request: string }>(
    `SELECT ${COLUMNS}, items.id, items.state, earlier, requests.json AS request, stdout, stderr
     FROM ${JOINED} LEFT JOIN streams ON streams.item = items.id WHERE fleet = ? AND key = ?`,
    ...[fleet, key],
  );
  if (row === undefined) return null;
  const result = row.status === null ? null : resultFrom(row);
  const attempts = db.all<{ json: string }>(
    "SELECT json FROM attempts WHERE item = ? AND attempt <> ? ORDER BY attempt DESC",
    // Of an item that waits or runs again, the result is still that of before.
    ...[row.id, row.state === "done" ? row.attempt : row.earlier],
  );
  return {
    state: row.state,
    request: JSON.parse(row.request) as ItemRequest,
    result,
    streams: streamsFrom(row, result?.output),
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
