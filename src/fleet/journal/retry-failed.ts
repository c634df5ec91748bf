import { setTimeout as sleep } from "node:timers/promises";
import type { Database } from "./database.ts";

/** Items in one transaction; between two of them other processes can write. */
const CHUNK = 2000;
const PAUSE_MS = 1;
/** Replaced results that are kept of each item, without what it printed. */
const MAX_EARLIER = 5;

/**
 * Queues all failed items of a fleet again. Their results stay until new attempts end, but no longer count. Returns the number
 * of items. If it is interrupted, the items of the last chunk on stay failed, and can be retried again.
 */
export async function retryFailed(db: Database, fleet: number): Promise<number> {
  for (let retried = 0; ; await sleep(PAUSE_MS)) {
    const some = db.transaction(() => retrySome(db, fleet));
    if (some === 0) return retried;
    retried += some;
  }
}

function retrySome(db: Database, fleet: number): number {
  const failed = db.all<{ id: number; status: string; code: string }>(
    "SELECT id, status, code FROM items WHERE fleet = ? AND failed = 1 AND state = 'done' LIMIT ?",
    ...[fleet, CHUNK],
  );
  for (const { id, status, code } of failed) {
    keepEarlier(db, id);
    db.run("UPDATE items SET state = 'queued', not_before = 0, run = NULL, earlier = attempt WHERE id = ?", id);
    db.run("UPDATE tallies SET count = count - 1 WHERE fleet = ? AND status = ? AND code = ?", fleet, status, code);
  }
  if (failed.length > 0) db.run("DELETE FROM tallies WHERE fleet = ? AND count < 1", fleet);
  return failed.length;
}

function keepEarlier(db: Database, item: number): void {
  db.run(
    `INSERT OR REPLACE INTO attempts (item, attempt, json)
     SELECT items.id, items.attempt, json_object(
       'attempt', items.attempt, 'status', items.status, 'run', json ->> '$.run', 'exitCode', json -> '$.exitCode',
       'error', json -> '$.error', 'stderrLine', json ->> '$.stderrLine', 'startedAt', json ->> '$.startedAt',
       'endedAt', json ->> '$.endedAt', 'durationMs', json -> '$.durationMs')
     FROM items JOIN results ON results.item = items.id WHERE items.id = ?`,
    item,
  );
  db.run(
    `DELETE FROM attempts WHERE item = ?1 AND attempt <=
       (SELECT attempt FROM attempts WHERE item = ?1 ORDER BY attempt DESC LIMIT 1 OFFSET ?2)`,
    ...[item, MAX_EARLIER],
  );
}
