import type { Database } from "./database.ts";
import { type FleetRecord, type FleetRow, fleetRow, recordOf, rowOf } from "./fleets.ts";

/** An item that ran when its owner died: what is left of it has to be removed before it may run again. */
export interface FencedItem {
  readonly index: number;
  readonly key: string;
  readonly attempt: number;
  /** The run whose label its container has. */
  readonly run: string;
  readonly cell: string | null;
  readonly owner: string;
}

export type TakenOver =
  | { readonly ok: true; readonly fleet: FleetRecord; readonly running: readonly FencedItem[] }
  | NotTakenOver;

/** `owner`: who runs it. */
export interface NotTakenOver {
  readonly ok: false;
  readonly code: "unknown" | "owned" | "never_loaded" | "over";
  readonly reason: string;
  readonly owner: string | null;
}

/**
 * Makes `self` the owner of a fleet that nobody runs any more, in one step, so that of two that try one is refused. A
 * cancelled fleet that has not come to its end is taken over as well, and stays cancelled: what is left of it is to be ended.
 */
export function takeOverFleet(db: Database, name: string, self: string, isDead: (owner: string) => boolean): TakenOver {
  return db.transaction(() => {
    const fleet = fleetRow(db, name);
    if (fleet === undefined) return refused("unknown", `there is no fleet ${name} in this project`);
    const refusal = whyNot(fleet, isDead);
    if (refusal !== null) return refusal;
    db.run(
      `UPDATE fleets SET owner = ?, why = iif(state = 'cancelled', why, NULL),
         state = iif(state = 'cancelled', 'cancelled', 'running') WHERE id = ?`,
      self,
      fleet.id,
    );
    return { ok: true, fleet: recordOf(db, rowOf(db, name)), running: runningItems(db, fleet.id) };
  });
}

function whyNot(fleet: FleetRow, isDead: (owner: string) => boolean): NotTakenOver | null {
  const { name, state, owner, ended_at } = fleet;
  if (ended_at !== null) return refused("over", `fleet ${name} is ${state}: there is nothing left of it to run`);
  if (owner !== null && !isDead(owner))
    return refused("owned", `fleet ${name} is ${state === "loading" ? "loaded" : "run"} by another process`, owner);
  if (state === "loading")
    return refused(
      "never_loaded",
      `the process that read the items of fleet ${name} ended before it had them all; nothing of it has run: start it anew`,
    );
  return null;
}

function refused(code: NotTakenOver["code"], reason: string, owner: string | null = null): NotTakenOver {
  return { ok: false, code, reason, owner };
}

/** As many as the dead owner ran side by side. */
function runningItems(db: Database, fleet: number): FencedItem[] {
  return db.all<FencedItem>(
    `SELECT position AS "index", key, attempt, run, cell, owner FROM items
     WHERE fleet = ? AND state = 'running' ORDER BY position`,
    fleet,
  );
}
