import { causeText, type FailureGroup, type ItemRequest, type ItemResult } from "../model/item.ts";
import type { SummaryLine } from "../model/store.ts";
import { type ResultRow, resultFrom } from "../stored/result-row.ts";
import type { Scope, Statements } from "./connection.ts";

/** Small enough for memory with the longest results. No statement stays open between pages. */
const PAGE = 200;

export const COLUMNS = "i.position, i.key, i.attempt, i.status, i.run, i.ended_at, s.json, f.why, r.fields";
export const JOINED = `corral.items i JOIN corral.fleets f ON f.id = i.fleet
  LEFT JOIN corral.requests r ON r.fleet = i.fleet AND r.position = i.position
  LEFT JOIN corral.results s ON s.fleet = i.fleet AND s.position = i.position`;

/** The most frequent first. */
export async function summaryOf(db: Statements, fleet: number): Promise<SummaryLine[]> {
  return await db.query<SummaryLine>(
    `SELECT status, nullif(code, '') AS code, count FROM corral.tallies WHERE fleet = $1
     ORDER BY count DESC, status COLLATE "C", code COLLATE "C"`,
    [fleet],
  );
}

/** Results of items, in the order of the manifest; that of an item which is retried stays until the new attempt ends. */
export async function* resultsOf(
  db: Statements,
  fleet: number,
  status: string | null,
): AsyncGenerator<ItemResult, void, undefined> {
  const rows = pages<ResultRow>((after) =>
    db.query(
      `SELECT ${COLUMNS} FROM ${JOINED}
       WHERE i.fleet = $1 AND i.position > $2 AND i.status IS NOT NULL AND ($3::text IS NULL OR i.status = $3)
       ORDER BY i.position LIMIT $4`,
      [fleet, after, status, PAGE],
    ),
  );
  for await (const row of rows) yield resultFrom(row);
}

/** The requests of failed items, in order, for a fleet that retries them. */
export async function* failedRequests(db: Statements, fleet: number): AsyncGenerator<ItemRequest, void, undefined> {
  const rows = pages<{ position: number; json: string }>((after) =>
    db.query(
      `SELECT i.position, r.json FROM corral.items i JOIN corral.requests r USING (fleet, position)
       WHERE i.fleet = $1 AND i.position > $2 AND i.failed = 1 ORDER BY i.position LIMIT $3`,
      [fleet, after, PAGE],
    ),
  );
  for await (const { json } of rows) yield JSON.parse(json) as ItemRequest;
}

const MAX_GROUPS = 20;

/** The largest first. */
export async function failureGroups(db: Statements, fleet: number): Promise<FailureGroup[]> {
  const groups = await db.query<{ count: number; status: string; code: string } & ResultRow>(
    `WITH groups AS (
       SELECT count(*)::int AS count, min(position) AS first FROM corral.items
       WHERE fleet = $1 AND failed = 1 AND state = 'done' GROUP BY status, code, cause ORDER BY count DESC, first LIMIT $2)
     SELECT groups.count, i.code, ${COLUMNS} FROM groups, ${JOINED}
     WHERE i.fleet = $1 AND i.position = groups.first ORDER BY groups.count DESC, groups.first`,
    [fleet, MAX_GROUPS],
  );
  return groups.map(({ count, code, ...row }) => {
    const example = resultFrom(row);
    return { count, status: row.status, code, text: causeText(example), example: example.key };
  });
}

const CHOICES = {
  slowest: { which: "state = 'done'", order: "duration_ms" },
  "newest failures": { which: "failed = 1", order: "ended_at" },
} as const;

/** The longest or the newest first. They are chosen before their results are read. */
export async function firstResults(
  db: Statements,
  fleet: number,
  choice: keyof typeof CHOICES,
  limit: number,
): Promise<ItemResult[]> {
  const { which, order } = CHOICES[choice];
  const rows = await db.query<ResultRow>(
    `SELECT ${COLUMNS} FROM ${JOINED} WHERE i.fleet = $1 AND i.position = ANY (ARRAY(
       SELECT position FROM corral.items WHERE fleet = $1 AND ${which} ORDER BY ${order} DESC LIMIT $2))
     ORDER BY i.${order} DESC`,
    [fleet, limit],
  );
  return rows.map(resultFrom);
}

/** Rows by position, in pages; no statement is open between pages. */
export async function* pages<Row extends { readonly position: number }>(
  pageAfter: (position: number) => Promise<Row[]>,
): AsyncGenerator<Row, void, undefined> {
  for (let after = -1; ; ) {
    const rows = await pageAfter(after);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.position;
  }
}

/** The names of the items' own fields, in the order in which items have them. */
export async function fieldNames(db: Statements, fleet: number, limit: number): Promise<string[]> {
  const [row] = await db.query<{ names: string }>("SELECT field_names AS names FROM corral.fleets WHERE id = $1", [
    fleet,
  ]);
  return (JSON.parse(row?.names ?? "[]") as string[]).slice(0, limit);
}

export async function* writtenPaths(db: Statements, fleet: number): AsyncGenerator<string, void, undefined> {
  const rows = pages<{ position: number; writes: string }>((after) =>
    db.query(
      `SELECT position, writes FROM corral.requests WHERE fleet = $1 AND position > $2 AND writes IS NOT NULL
       ORDER BY position LIMIT $3`,
      [fleet, after, PAGE],
    ),
  );
  for await (const { writes } of rows) yield* JSON.parse(writes) as string[];
}

export async function endCacheKeys(
  db: Statements,
  fleet: number,
  { mark, valid }: { readonly mark: string; readonly valid: boolean },
): Promise<void> {
  await db.query(
    `UPDATE corral.items SET cache_key = CASE WHEN $1 THEN substr(cache_key, $2) END
     WHERE fleet = $3 AND state = 'done' AND status = 'succeeded' AND starts_with(cache_key, $4)`,
    [valid, mark.length + 1, fleet, mark],
  );
}

/** The newest item of any fleet of the project that succeeded with the same cache key; null if there is none. */
export async function earlierSuccess(
  { db, project }: Scope,
  cacheKey: string,
): Promise<{ fleet: string; result: ItemResult } | null> {
  const [row] = await db.query<{ fleet: string; json: string }>(
    `SELECT f.name AS fleet, s.json FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     JOIN corral.results s ON s.fleet = i.fleet AND s.position = i.position
     WHERE i.cache_key = $1 AND i.status = 'succeeded' AND f.project = $2
     ORDER BY i.fleet DESC, i.position DESC LIMIT 1`,
    [cacheKey, project],
  );
  return row === undefined ? null : { fleet: row.fleet, result: JSON.parse(row.json) as ItemResult };
}
