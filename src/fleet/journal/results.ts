import { causeText, type FailureGroup, type ItemRequest, type ItemResult } from "../model/item.ts";
import type { SummaryLine } from "../model/store.ts";
import { type ResultRow, resultFrom } from "../stored/result-row.ts";
import type { Database } from "./database.ts";

/** Small enough for memory with the longest results. No statement stays open between pages. */
const PAGE = 200;

/** The most frequent first. */
export function summaryOf(db: Database, fleet: number): SummaryLine[] {
  return db.all<SummaryLine>(
    "SELECT status, nullif(code, '') AS code, count FROM tallies WHERE fleet = ? ORDER BY count DESC, status, code",
    fleet,
  );
}

export const COLUMNS =
  "position, key, attempt, status, run, items.ended_at, results.json, why, requests.json ->> '$.fields' AS fields";
export const JOINED = `items JOIN fleets ON fleets.id = items.fleet
  LEFT JOIN requests ON requests.item = items.id LEFT JOIN results ON results.item = items.id`;

/** Results of items, in the order of the manifest; that of an item which is retried stays until the new attempt ends. Of a running fleet, each page shows the state when it is read. */
export function* resultsOf(
  db: Database,
  fleet: number,
  status: string | null,
): Generator<ItemResult, undefined, undefined> {
  const [filter, values] = status === null ? ["", []] : ["AND status = ?", [status]];
  const rows = pages<ResultRow>((after) =>
    db.all(
      `SELECT ${COLUMNS} FROM ${JOINED}
       WHERE fleet = ? ${filter} AND position > ? AND status IS NOT NULL ORDER BY position LIMIT ?`,
      ...[fleet, ...values, after, PAGE],
    ),
  );
  for (const row of rows) yield resultFrom(row);
}

/** The requests of failed items, in order, for a fleet that retries them. */
export function* failedRequests(db: Database, fleet: number): Generator<ItemRequest, undefined, undefined> {
  const rows = pages<{ position: number; json: string }>((after) =>
    db.all(
      `SELECT position, json FROM items JOIN requests ON requests.item = items.id
       WHERE fleet = ? AND position > ? AND failed = 1 ORDER BY position LIMIT ?`,
      ...[fleet, after, PAGE],
    ),
  );
  for (const { json } of rows) yield JSON.parse(json) as ItemRequest;
}

const MAX_GROUPS = 20;

/** The largest first. The planner would read every item that has ended, of which few have failed. */
export function failureGroups(db: Database, fleet: number): FailureGroup[] {
  const groups = db.all<{ count: number; status: string; code: string; first: number }>(
    `SELECT status, code, cause, count(*) AS count, min(position) AS first FROM items INDEXED BY items_failed
     WHERE fleet = ? AND failed = 1 AND state = 'done' GROUP BY status, code, cause ORDER BY count DESC, first LIMIT ?`,
    ...[fleet, MAX_GROUPS],
  );
  return groups.map(({ first, ...group }) => {
    const row = db.get<ResultRow>(`SELECT ${COLUMNS} FROM ${JOINED} WHERE fleet = ? AND position = ?`, fleet, first);
    if (row === undefined) throw new Error(`the fleet has no item ${first}`);
    const example = resultFrom(row);
    const { count, status, code } = group;
    return { count, status, code, text: causeText(example), example: example.key };
  });
}

const ORDERS = { slowest: "duration_ms", "newest failures": "items.ended_at" } as const;
const CHOICES = {
  slowest: `items.state = 'done' ORDER BY ${ORDERS.slowest}`,
  "newest failures": `failed = 1 ORDER BY ${ORDERS["newest failures"]}`,
} as const;

/** The longest or the newest first. They are chosen before their results are read: sorting whole rows takes three times as long. */
export function firstResults(db: Database, fleet: number, which: keyof typeof CHOICES, limit: number): ItemResult[] {
  const chosen = `SELECT id FROM items WHERE fleet = ? AND ${CHOICES[which]} DESC LIMIT ?`;
  const sql = `SELECT ${COLUMNS} FROM ${JOINED} WHERE items.id IN (${chosen}) ORDER BY ${ORDERS[which]} DESC`;
  return db.all<ResultRow>(sql, fleet, limit).map(resultFrom);
}

/** Rows by position, in pages; no statement is open between pages. */
export function* pages<Row extends { readonly position: number }>(
  pageAfter: (position: number) => Row[],
): Generator<Row, undefined, undefined> {
  let after = -1;
  for (;;) {
    const rows = pageAfter(after);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.position;
  }
}

/** The names of the items' own fields, in the order in which items have them. */
export function fieldNames(db: Database, fleet: number, limit: number): string[] {
  const rows = db.all<{ name: string }>(
    `SELECT fields.key AS name FROM items JOIN requests ON requests.item = items.id, json_each(requests.json, '$.fields') AS fields
     WHERE fleet = ? GROUP BY fields.key ORDER BY min(position), min(fields.id) LIMIT ?`,
    ...[fleet, limit],
  );
  return rows.map(({ name }) => name);
}

export function* writtenPaths(db: Database, fleet: number): Generator<string, undefined, undefined> {
  const rows = pages<{ position: number; paths: string }>((after) =>
    db.all(
      `SELECT position, json_extract(json, '$.allowWrite') AS paths FROM items JOIN requests ON requests.item = items.id
       WHERE fleet = ? AND position > ? AND json_extract(json, '$.allowWrite') IS NOT NULL ORDER BY position LIMIT ?`,
      ...[fleet, after, PAGE],
    ),
  );
  for (const { paths } of rows) yield* JSON.parse(paths) as string[];
}

export function endCacheKeys(
  db: Database,
  fleet: number,
  { mark, valid }: { readonly mark: string; readonly valid: boolean },
): void {
  db.transaction(() =>
    db.run(
      `UPDATE items SET cache_key = iif(?1, substr(cache_key, ?2), NULL)
       WHERE fleet = ?3 AND state = 'done' AND status = 'succeeded' AND substr(cache_key, 1, ?4) = ?5`,
      ...[valid ? 1 : 0, mark.length + 1, fleet, mark.length, mark],
    ),
  );
}

/**
 * The newest item of any fleet of the project that succeeded with the same cache key; null if there is none. The index contains
 * only the start of each key, so that it stays small.
 */
export function earlierSuccess(db: Database, cacheKey: string): { fleet: string; result: ItemResult } | null {
  const row = db.get<{ fleet: string; json: string }>(
    `SELECT fleets.name AS fleet, json FROM items
     JOIN results ON results.item = items.id JOIN fleets ON fleets.id = items.fleet
     WHERE substr(cache_key, 1, 16) = substr(?1, 1, 16) AND cache_key = ?1 AND status = 'succeeded'
     ORDER BY items.id DESC LIMIT 1`,
    cacheKey,
  );
  return row === undefined ? null : { fleet: row.fleet, result: JSON.parse(row.json) as ItemResult };
}
