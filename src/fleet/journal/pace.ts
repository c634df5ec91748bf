import type { Pace } from "../model/fleet-record.ts";
import { MOST_COUNTED, paceFrom, UNKNOWN_PACE } from "../stored/pace-from.ts";
import type { Database } from "./database.ts";

/**
 * Counted are the items before those that run, since new items are taken in order. While only retries run, these are few and old, and
 * the pace is unknown.
 */
export function paceOf(db: Database, fleet: number, left: number, nowMs: number): Pace {
  const { front = null } =
    db.get<{ front: number | null }>(
      "SELECT max(position) AS front FROM items WHERE fleet = ? AND state = 'running'",
      fleet,
    ) ?? {};
  if (front === null) return UNKNOWN_PACE;
  const ended = db.all<{ at: number | null }>(
    `SELECT iif(state = 'done', ended_at, NULL) AS at FROM items WHERE fleet = ? AND position < ?
     ORDER BY position DESC LIMIT ?`,
    ...[fleet, front, MOST_COUNTED],
  );
  return paceFrom(
    ended.map(({ at }) => at),
    left,
    nowMs,
  );
}
