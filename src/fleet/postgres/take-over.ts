import type { ItemResult } from "../model/item.ts";
import type { ApplyingItem, FencedItem, TakenOver } from "../model/store.ts";
import { unknownFleet, whyNotTaken } from "../stored/ownership.ts";
import { streamsFrom } from "../stored/stream-encoding.ts";
import type { Statements } from "./connection.ts";
import { fleetRow, recordOf, rowOf } from "./fleets.ts";
import type { Scope } from "./scope.ts";

/**
 * Makes this process the owner of a fleet that no process runs, atomically, so that only one of two concurrent attempts succeeds.
 * A cancelled fleet that has not ended can be taken over too and stays cancelled, so that its owner can end it. What machines run
 * or delivered stays theirs. `retries`: failed items are to be retried. `check` throws
 * if items must not run again.
 */
export async function takeOverFleet(
  scope: Scope,
  name: string,
  retries: boolean,
  check: (db: Statements, fleet: number) => Promise<void> = async () => {},
): Promise<TakenOver> {
  const { db, project, self } = scope;
  return await db.transaction(async (within, again) => {
    await within.query("SELECT 1 FROM corral.fleets WHERE project = $1 AND name = $2 FOR UPDATE", [project, name]);
    const fleet = await fleetRow(scope, name, within);
    if (fleet === undefined) return unknownFleet(name);
    const hasEnded = fleet.owner === null ? false : await hasOwnerEnded(scope, within, fleet.owner);
    const isFree = (owner: string): boolean => hasEnded || (again && owner === self);
    const refusal = whyNotTaken(fleet, isFree, retries);
    if (refusal !== null) return refusal;
    // No item of a cancelled one runs.
    if (fleet.state !== "cancelled") await check(within, fleet.id);
    await within.query(
      `UPDATE corral.fleets SET owner = $1, why = CASE WHEN state = 'cancelled' THEN why END, agreement = NULL,
         state = CASE WHEN state = 'cancelled' THEN 'cancelled' ELSE 'running' END, ended_at = NULL WHERE id = $2`,
      [self, fleet.id],
    );
    // At most as many as the dead owner ran at once.
    const running = await within.query<FencedItem>(
      `SELECT i.position AS "index", i.key, i.attempt, i.run, i.cell, i.owner FROM corral.items i
       WHERE i.fleet = $1 AND i.state = 'running'
         AND NOT EXISTS (SELECT 1 FROM corral.processes p WHERE p.id = i.owner AND p.is_machine)
       ORDER BY i.position`,
      [fleet.id],
    );
    const applying = await applyingIn(within, fleet.id);
    return { ok: true, fleet: recordOf(await rowOf(scope, name, within)), running, applying };
  });
}

/** On this machine its process counts; if that is not visible, its lease. */
export async function hasOwnerEnded({ isDead, isAlive }: Scope, db: Statements, owner: string): Promise<boolean> {
  if (isDead(owner)) return true;
  if (isAlive(owner)) return false;
  const living = await db.query("SELECT 1 FROM corral.processes WHERE id = $1 AND lease_until > corral.now_ms()", [
    owner,
  ]);
  return living.length === 0;
}

interface ApplyingRow extends Omit<ApplyingItem, "intent"> {
  readonly json: string;
  readonly cacheKey: string | null;
  readonly isPrinted: boolean;
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
  readonly fields: string | null;
}

async function applyingIn(db: Statements, fleet: number): Promise<ApplyingItem[]> {
  const rows = await db.query<ApplyingRow>(
    `SELECT i.position AS "index", i.key, i.attempt, i.run, t.json, t.cache_key AS "cacheKey", t.is_printed AS "isPrinted",
       t.stdout, t.stderr, r.fields
     FROM corral.items i JOIN corral.intents t USING (fleet, position) LEFT JOIN corral.requests r USING (fleet, position)
     WHERE i.fleet = $1 AND i.state = 'applying' ORDER BY i.position`,
    [fleet],
  );
  return rows.map(({ json, cacheKey, isPrinted, fields, stdout, stderr, ...item }) => {
    const kept = JSON.parse(json) as Omit<ItemResult, "fields">;
    const result: ItemResult = { ...kept, fields: JSON.parse(fields ?? "{}") as ItemResult["fields"] };
    const streams = isPrinted ? streamsFrom({ stdout, stderr }, result.output) : null;
    return { ...item, intent: { result, cacheKey, streams } };
  });
}
