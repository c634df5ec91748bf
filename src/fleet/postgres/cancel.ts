import { QueueError } from "../model/queue-error.ts";
import type { Statements } from "./connection.ts";
import type { Scope } from "./scope.ts";

const CHUNK = 5000;

/** Cancels a fleet and what waits in it. Returns the number of cancelled items. An item that is just being claimed is waited for. */
export async function cancelFleet({ db, now }: Scope, fleet: number, why: string): Promise<number> {
  // The state changes first, so that nothing is claimed between the chunks.
  await db.query(
    "UPDATE corral.fleets SET state = 'cancelled', why = $1, agreement = NULL WHERE id = $2 AND state IN ('running', 'paused')",
    [why, fleet],
  );
  const [row] = await db.query<{ state: string }>("SELECT state FROM corral.fleets WHERE id = $1", [fleet]);
  if (row === undefined) throw new QueueError("the fleet was removed from the queue");
  if (row.state !== "cancelled") return 0;
  for (let cancelled = 0; ; ) {
    const some = await db.transaction(
      async (within) => (await keepSome(within, fleet)) || (await cancelSome(within, fleet, now())),
    );
    if (some === 0) return cancelled;
    cancelled += some;
  }
}

async function cancelSome(db: Statements, fleet: number, nowMs: number | null): Promise<number> {
  const some = await db.query(
    `UPDATE corral.items SET state = 'done', status = 'cancelled', code = 'cancelled', duration_ms = 0,
       ended_at = coalesce($3::bigint, corral.now_ms())
     WHERE fleet = $1 AND position IN (
       SELECT position FROM corral.items WHERE fleet = $1 AND state = 'queued' LIMIT $2 FOR UPDATE)
     RETURNING position`,
    [fleet, CHUNK, nowMs],
  );
  if (some.length > 0) await tally(db, fleet, "cancelled", "cancelled", 0, some.length);
  return some.length;
}

/** Items that wait to be retried: their earlier results count again. */
async function keepSome(db: Statements, fleet: number): Promise<number> {
  const kept = await db.query<{ status: string; code: string; failed: number; count: number }>(
    `WITH kept AS (
       UPDATE corral.items SET state = 'done' WHERE fleet = $1 AND position IN (
         SELECT position FROM corral.items WHERE fleet = $1 AND state = 'queued' AND status IS NOT NULL LIMIT $2
         FOR UPDATE)
       RETURNING status, code, failed)
     SELECT status, code, failed, count(*)::int AS count FROM kept GROUP BY status, code, failed`,
    [fleet, CHUNK],
  );
  for (const { status, code, failed, count } of kept) await tally(db, fleet, status, code, failed, count);
  return kept.reduce((sum, { count }) => sum + count, 0);
}

export async function tally(
  db: Statements,
  fleet: number,
  status: string,
  code: string,
  failed: number,
  count: number,
): Promise<void> {
  await db.query(
    `INSERT INTO corral.tallies (fleet, status, code, failed, count) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (fleet, status, code) DO UPDATE SET count = corral.tallies.count + excluded.count`,
    [fleet, status, code, failed, count],
  );
}
