import type { ItemResult } from "../model/item.ts";
import type { PendingItem, Reviewed } from "../model/stored-item.ts";
import { reviewedResult } from "../stored/reviewed-result.ts";
import { tally } from "./cancel.ts";
import type { Statements } from "./connection.ts";
import type { Scope } from "./scope.ts";
import { ACTIVE } from "./states.ts";

/**
 * Records the decisions on items, all at once. An item that is no longer pending stays as it is, so the same may be recorded twice.
 * Returns those whose run is not settled yet.
 */
export async function recordReviewed(scope: Scope, reviewed: readonly Reviewed[]): Promise<readonly Reviewed[]> {
  return await scope.db.transaction(async (within) => {
    const unsettled: Reviewed[] = [];
    for (const one of reviewed) {
      await record(scope, within, one);
      if (await isUnsettled(scope, within, one)) unsettled.push(one);
    }
    return unsettled;
  });
}

async function isUnsettled({ project }: Scope, db: Statements, { fleet, item, run }: Reviewed): Promise<boolean> {
  const rows = await db.query(
    `SELECT 1 FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.${ACTIVE}`,
    [project, fleet, item, run],
  );
  return rows.length > 0;
}

/** The first pending items after an index, in the order of the manifest. */
export async function pendingAfter(
  db: Statements,
  fleet: number,
  index: number,
  limit: number,
): Promise<PendingItem[]> {
  return await db.query<PendingItem>(
    `SELECT position AS "index", key, run FROM corral.items
     WHERE fleet = $1 AND status = 'pending' AND state = 'done' AND run IS NOT NULL AND position > $2 ORDER BY position LIMIT $3`,
    [fleet, index, limit],
  );
}

async function record({ project }: Scope, db: Statements, { fleet, item, run, counts }: Reviewed): Promise<void> {
  const [row] = await db.query<{ fleet: number; code: string; json: string }>(
    `SELECT i.fleet, i.code, r.json FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     JOIN corral.results r ON r.fleet = i.fleet AND r.position = i.position
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.state = 'done' AND i.status = 'pending'
     FOR UPDATE OF i`,
    [project, fleet, item, run],
  );
  if (row === undefined) return;
  const after = reviewedResult(JSON.parse(row.json) as ItemResult, counts);
  const { status, error } = after;
  const at = [row.fleet, item];
  const code = error?.code ?? "";
  await db.query("UPDATE corral.items SET status = $3, code = $4 WHERE fleet = $1 AND position = $2", [
    ...at,
    status,
    code,
  ]);
  await db.query("UPDATE corral.results SET json = $3 WHERE fleet = $1 AND position = $2", [
    ...at,
    JSON.stringify(after),
  ]);
  await tally(db, row.fleet, "pending", row.code, 0, -1);
  await db.query("DELETE FROM corral.tallies WHERE fleet = $1 AND count <= 0", [row.fleet]);
  await tally(db, row.fleet, status, code, 0, 1);
}
