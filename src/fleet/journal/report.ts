import type { Database } from "./database.ts";
import { pages } from "./results.ts";

/** The number of items with one status and error code. */
export interface SummaryLine {
  readonly status: string;
  /** The error code; null if there was no error. */
  readonly code: string | null;
  readonly count: number;
}

/** One item on a timeline. Times are milliseconds since 1970. */
export interface TimelineEntry {
  readonly index: number;
  readonly status: string;
  /** Null if nothing ran. */
  readonly startedAtMs: number | null;
  readonly endedAtMs: number;
  readonly durationMs: number;
  readonly slot: number | null;
}

/** How many items ended in each of consecutive, equally long intervals. */
export interface Throughput {
  /** The start of the first bucket, since 1970. */
  readonly fromMs: number;
  readonly bucketMs: number;
  readonly buckets: readonly { readonly ended: number; readonly failed: number }[];
}

/** The most frequent first. */
export function summaryOf(db: Database, fleet: number): SummaryLine[] {
  return db.all<SummaryLine>(
    "SELECT status, nullif(code, '') AS code, count FROM tallies WHERE fleet = ? ORDER BY count DESC, status, code",
    fleet,
  );
}

const PAGE = 2000;

/** Done items, in the order of the manifest. */
export function* timelineOf(db: Database, fleet: number): Generator<TimelineEntry, undefined, undefined> {
  const rows = pages<TimelineEntry & { readonly position: number }>((after) =>
    db.all(
      `SELECT position, position AS "index", status, started_at AS startedAtMs, ended_at AS endedAtMs,
         duration_ms AS durationMs, slot
       FROM items WHERE fleet = ? AND position > ? AND state = 'done' ORDER BY position LIMIT ?`,
      ...[fleet, after, PAGE],
    ),
  );
  for (const { position: _, ...entry } of rows) yield { ...entry };
}

/** At most `maxBuckets` buckets; null if no item that ran has ended. */
export function throughputOf(db: Database, fleet: number, maxBuckets: number): Throughput | null {
  const span = db.get<{ first: number | null; last: number }>(
    `SELECT min(coalesce(started_at, ended_at)) AS first, max(ended_at) AS last FROM items
     WHERE fleet = ? AND state = 'done' AND status <> 'cancelled'`,
    fleet,
  );
  if (span === undefined || span.first === null) return null;
  const { first, last } = span;
  const bucketMs = Math.max(1, Math.ceil((last - first + 1) / maxBuckets));
  const buckets = Array.from({ length: Math.floor((last - first) / bucketMs) + 1 }, () => ({ ended: 0, failed: 0 }));
  const rows = db.all<{ bucket: number; ended: number; failed: number }>(
    `SELECT CAST((ended_at - ?) / ? AS INTEGER) AS bucket, count(*) AS ended, sum(failed) AS failed FROM items
     WHERE fleet = ? AND state = 'done' AND status <> 'cancelled' GROUP BY bucket`,
    ...[first, bucketMs, fleet],
  );
  // If the clock was set back, items may end before the first started: they count in the first bucket.
  for (const { bucket, ended, failed } of rows) {
    const at = buckets[Math.max(0, bucket)];
    if (at === undefined) continue;
    at.ended += ended;
    at.failed += failed;
  }
  return { fromMs: first, bucketMs, buckets };
}
