import type { Pace } from "../model/fleet-record.ts";
import type { ItemRequest } from "../model/item.ts";
import type { EarlierAttempt, ItemFilter, ItemLog, ListedItem, StoredItem } from "../model/stored-item.ts";
import { MOST_COUNTED, paceFrom, UNKNOWN_PACE } from "../stored/pace-from.ts";
import { type ResultRow, resultFrom } from "../stored/result-row.ts";
import { streamsFrom } from "../stored/stream-encoding.ts";
import type { Statements } from "./connection.ts";
import { keyHash } from "./load.ts";
import { COLUMNS, JOINED, pages } from "./results.ts";
import { ACTIVE, outerState } from "./states.ts";

/** Where an item runs, or ran. The coordinator's own process has a row too, but no machine's name. */
const MACHINE = `CASE i.state
  WHEN 'away' THEN (SELECT p.name FROM corral.processes p WHERE p.id = i.owner)
  WHEN 'done' THEN i.machine WHEN 'queued' THEN NULL
  ELSE (SELECT d.machine_name FROM corral.deliveries d
        WHERE d.fleet = i.fleet AND d.position = i.position AND d.attempt = i.attempt) END`;

/** In the order of the manifest, beginning after the item with this index. */
export async function listedItems(
  db: Statements,
  fleet: number,
  { state, status, search, failed = false, alike }: ItemFilter,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<ListedItem[]> {
  const values: unknown[] = [fleet, after, limit];
  const terms: string[] = [];
  const add = (term: (value: string) => string, value: unknown): void => {
    values.push(value);
    terms.push(`AND ${term(`$${values.length}`)}`);
  };
  if (state === "running") terms.push(`AND ${ACTIVE}`);
  else if (state !== undefined) add((value) => `state = ${value}`, state);
  if (status !== undefined) add((value) => `status = ${value}`, status);
  if (search !== undefined) add((value) => `strpos(key, ${value}) > 0`, search);
  if (failed || alike !== undefined) terms.push("AND failed = 1");
  if (alike !== undefined)
    add(
      (value) =>
        `(status, code, cause) = (SELECT status, code, cause FROM corral.items WHERE fleet = $1 AND key_hash = ${value})`,
      keyHash(alike),
    );
  const rows = await db.query<Omit<ListedItem, "endedAt" | "state"> & { endedAt: number | null; state: string }>(
    `SELECT position AS "index", key, state, status, nullif(code, '') AS code, attempt, run, ended_at AS "endedAt",
            duration_ms AS "durationMs", ${MACHINE} AS machine
     FROM corral.items i WHERE fleet = $1 AND position > $2 ${terms.join(" ")} ORDER BY position LIMIT $3`,
    values,
  );
  return rows.map((row) => ({
    ...row,
    state: outerState(row.state),
    endedAt: row.endedAt === null ? null : new Date(row.endedAt).toISOString(),
  }));
}

interface Blobs {
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
}

export async function itemOf(db: Statements, fleet: number, key: string): Promise<StoredItem | null> {
  const [row] = await db.query<ResultRow & Blobs & { state: string; request: string; machine: string | null }>(
    `SELECT ${COLUMNS}, i.state, r.json AS request, t.stdout, t.stderr, ${MACHINE} AS machine
     FROM ${JOINED} LEFT JOIN corral.streams t ON t.fleet = i.fleet AND t.position = i.position
     WHERE i.fleet = $1 AND i.key_hash = $2`,
    [fleet, keyHash(key)],
  );
  if (row === undefined) return null;
  const result = row.status === null ? null : resultFrom(row);
  const attempts = await db.query<{ json: string }>(
    // Of an item that waits or runs again, the result is still that of before.
    `SELECT json FROM corral.attempts WHERE fleet = $1 AND position = $2 AND attempt <> coalesce($3::int,
       (SELECT max(attempt) FROM corral.attempts WHERE fleet = $1 AND position = $2)) ORDER BY attempt DESC`,
    [fleet, row.position, row.state === "done" ? row.attempt : null],
  );
  return {
    state: outerState(row.state),
    request: JSON.parse(row.request) as ItemRequest,
    result,
    streams: streamsFrom(row, result?.output),
    machine: row.machine,
    attempts: attempts.map(({ json }) => JSON.parse(json) as EarlierAttempt),
  };
}

export async function keysOf(db: Statements, fleet: number, limit: number): Promise<string[]> {
  const rows = await db.query<{ key: string }>(
    "SELECT key FROM corral.items WHERE fleet = $1 ORDER BY position LIMIT $2",
    [fleet, limit],
  );
  return rows.map(({ key }) => key);
}

/** Pages are small: each item may have two long streams. */
const PAGE = 50;

export async function* logsOf(
  db: Statements,
  fleet: number,
  failed: boolean,
): AsyncGenerator<ItemLog, void, undefined> {
  const rows = pages<ResultRow & Blobs>((after) =>
    db.query(
      `SELECT ${COLUMNS}, t.stdout, t.stderr FROM ${JOINED}
       JOIN corral.streams t ON t.fleet = i.fleet AND t.position = i.position
       WHERE i.fleet = $1 AND i.position > $2 AND i.status IS NOT NULL ${failed ? "AND i.failed = 1" : ""}
       ORDER BY i.position LIMIT $3`,
      [fleet, after, PAGE],
    ),
  );
  for await (const row of rows) {
    const { key, status, exitCode, output } = resultFrom(row);
    yield { key, status, exitCode, ...streamsFrom(row, output) };
  }
}

/** Counted are the items before those that run, since new items are taken in order. One statement sees one moment. */
export async function paceOf(db: Statements, fleet: number, left: number, nowMs: number | null): Promise<Pace> {
  const ended = await db.query<{ now: number; at: number | null }>(
    `WITH front AS MATERIALIZED (
       SELECT max(position) AS front, coalesce($2::bigint, corral.now_ms()) AS now FROM corral.items
       WHERE fleet = $1 AND ${ACTIVE})
     SELECT now, CASE WHEN state = 'done' THEN ended_at END AS at FROM front, LATERAL (
       SELECT state, ended_at FROM corral.items WHERE fleet = $1 AND position < front ORDER BY position DESC LIMIT $3) AS before`,
    [fleet, nowMs, MOST_COUNTED],
  );
  const [first] = ended;
  if (first === undefined) return UNKNOWN_PACE;
  return paceFrom(
    ended.map(({ at }) => at),
    left,
    first.now,
  );
}
