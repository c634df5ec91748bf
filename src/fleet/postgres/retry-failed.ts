import type { ItemResult } from "../model/item.ts";
import type { EarlierAttempt } from "../model/stored-item.ts";
import type { Connection, Statements } from "./connection.ts";

/** Items in one transaction, with their results in memory. */
const CHUNK = 200;
/** Replaced results that are kept of each item, without what it printed. */
const MAX_EARLIER = 5;

/**
 * Queues all failed items of a fleet again. Their results stay until new attempts end, but no longer count. Returns the number
 * of items. If it is interrupted, the items of the last chunk on stay failed, and can be retried again.
 */
export async function retryFailed(db: Connection, fleet: number): Promise<number> {
  for (let retried = 0; ; ) {
    const some = await db.transaction((within) => retrySome(within, fleet));
    if (some === 0) return retried;
    retried += some;
  }
}

interface FailedRow {
  readonly position: number;
  readonly attempt: number;
  readonly status: string;
  readonly json: string | null;
}

async function retrySome(db: Statements, fleet: number): Promise<number> {
  const failed = await db.query<FailedRow>(
    `SELECT i.position, i.attempt, i.status, r.json FROM corral.items i LEFT JOIN corral.results r USING (fleet, position)
     WHERE i.fleet = $1 AND i.failed = 1 AND i.state = 'done' LIMIT $2 FOR UPDATE OF i`,
    [fleet, CHUNK],
  );
  if (failed.length === 0) return 0;
  const positions = failed.map(({ position }) => position);
  await db.query(
    `INSERT INTO corral.attempts (fleet, position, attempt, json)
     SELECT $1, * FROM unnest($2::int[], $3::int[], $4::text[])
     ON CONFLICT (fleet, position, attempt) DO UPDATE SET json = excluded.json`,
    [fleet, positions, failed.map(({ attempt }) => attempt), failed.map((row) => JSON.stringify(earlierOf(row)))],
  );
  await db.query(
    `DELETE FROM corral.attempts a USING (
       SELECT position, attempt, row_number() OVER (PARTITION BY position ORDER BY attempt DESC) AS age
       FROM corral.attempts WHERE fleet = $1 AND position = ANY ($2::int[])) AS ranked
     WHERE a.fleet = $1 AND a.position = ranked.position AND a.attempt = ranked.attempt AND ranked.age > $3`,
    [fleet, positions, MAX_EARLIER],
  );
  await db.query(
    `WITH waiting AS (
       UPDATE corral.items SET state = 'queued', not_before = 0, run = NULL, earlier = attempt
       WHERE fleet = $1 AND position = ANY ($2::int[]) RETURNING status, code),
     gone AS (SELECT status, code, count(*) AS count FROM waiting GROUP BY status, code)
     UPDATE corral.tallies t SET count = t.count - gone.count FROM gone
     WHERE t.fleet = $1 AND t.status = gone.status AND t.code = gone.code`,
    [fleet, positions],
  );
  await db.query("DELETE FROM corral.tallies WHERE fleet = $1 AND count < 1", [fleet]);
  return failed.length;
}

function earlierOf({ attempt, status, json }: FailedRow): EarlierAttempt {
  const kept = JSON.parse(json ?? "{}") as Partial<ItemResult>;
  const { run = null, exitCode = null, error = null, stderrLine = null, startedAt = null } = kept;
  const { endedAt = "", durationMs = 0, machine } = kept;
  const ran = machine === undefined ? {} : { machine };
  return { attempt, status, run, ...ran, exitCode, error, stderrLine, startedAt, endedAt, durationMs };
}
