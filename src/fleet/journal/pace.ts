import type { Pace } from "../model/fleet-record.ts";
import type { Database } from "./database.ts";

const RECENT_MS = 60_000;
/** Few rows are read, however many items there are. */
const MOST_COUNTED = 500;
/** Of fewer items, a rate says nothing. */
const LEAST_COUNTED = 3;

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
  if (front === null) return { recentRate: null, leftMs: null };
  const ended = db.all<{ at: number | null }>(
    `SELECT iif(state = 'done', ended_at, NULL) AS at FROM items WHERE fleet = ? AND position < ?
     ORDER BY position DESC LIMIT ?`,
    ...[fleet, front, MOST_COUNTED],
  );
  const recent = ended.flatMap(({ at }) => (at !== null && at > nowMs - RECENT_MS ? [at] : []));
  if (recent.length < LEAST_COUNTED) return { recentRate: null, leftMs: null };
  const recentRate = (recent.length * 1000) / Math.max(1, nowMs - Math.min(...recent));
  return { recentRate, leftMs: (left * 1000) / recentRate };
}
