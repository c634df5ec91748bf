import type { ItemResult } from "../model/item.ts";
import type { PendingItem, Reviewed } from "../model/stored-item.ts";
import { reviewedResult } from "../stored/reviewed-result.ts";
import type { Database } from "./database.ts";

/**
 * Records the decisions on items, all at once and on disk when it returns. An item that is no longer pending stays as it is, so
 * the same may be recorded twice. Returns those whose run is not settled yet.
 */
export function recordReviewed(db: Database, reviewed: readonly Reviewed[]): readonly Reviewed[] {
  return db.durably(() => {
    for (const one of reviewed) record(db, one);
    return reviewed.filter((one) => isUnsettled(db, one));
  });
}

function isUnsettled(db: Database, { fleet, item, run }: Reviewed): boolean {
  const row = db.get(
    `SELECT 1 FROM items JOIN fleets ON fleets.id = items.fleet
     WHERE fleets.name = ? AND position = ? AND run = ? AND items.state = 'running'`,
    ...[fleet, item, run],
  );
  return row !== undefined;
}

/** The first pending items after an index, in the order of the manifest. */
export function pendingAfter(db: Database, fleet: number, index: number, limit: number): PendingItem[] {
  return db.all<PendingItem>(
    `SELECT position AS "index", key, run FROM items
     WHERE fleet = ? AND status = 'pending' AND state = 'done' AND run IS NOT NULL AND position > ? ORDER BY position LIMIT ?`,
    ...[fleet, index, limit],
  );
}

function record(db: Database, { fleet, item, run, counts }: Reviewed): void {
  const row = db.get<{ id: number; fleet: number; code: string; json: string }>(
    `SELECT items.id, items.fleet, code, json FROM items JOIN fleets ON fleets.id = items.fleet
     JOIN results ON results.item = items.id
     WHERE fleets.name = ? AND position = ? AND run = ? AND items.state = 'done' AND status = 'pending'`,
    ...[fleet, item, run],
  );
  if (row === undefined) return;
  const before = JSON.parse(row.json) as ItemResult;
  const after = reviewedResult(before, counts);
  const { status, error } = after;
  const code = error?.code ?? "";
  db.run("UPDATE items SET status = ?, code = ? WHERE id = ?", status, code, row.id);
  db.run("UPDATE results SET json = ? WHERE item = ?", JSON.stringify(after), row.id);
  const key = [row.fleet, "pending", row.code] as const;
  db.run("UPDATE tallies SET count = count - 1 WHERE fleet = ? AND status = ? AND code = ?", ...key);
  db.run("DELETE FROM tallies WHERE fleet = ? AND status = ? AND code = ? AND count <= 0", ...key);
  db.run(
    `INSERT INTO tallies (fleet, status, code, failed, count) VALUES (?, ?, ?, 0, 1)
     ON CONFLICT (fleet, status, code) DO UPDATE SET count = count + 1`,
    ...[row.fleet, status, code],
  );
}
