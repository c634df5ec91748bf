import type { FleetSpec, StoredItem } from "../model/item.ts";
import type { ItemCounts } from "../model/queue.ts";
import type { FleetRecord, FleetState } from "../model/store.ts";

/** In SQL: items that are running, as everybody else says it. */
export const ACTIVE = "state IN ('running', 'away', 'delivered', 'applying')";

/** `away`: a machine runs it; `delivered`: it waits for its coordinator; `applying`: its effect has begun. */
export function outerState(state: string): StoredItem["state"] {
  return state === "queued" || state === "done" ? state : "running";
}

/** A fleet as `read.sql` reads it. Its cost does not depend on the number of items: results are tallied as they come, and few items run at once. */
export interface FleetRow extends Pick<FleetRecord, "owner" | "why">, Omit<ItemCounts, "queued"> {
  /** The row's number in the database. */
  readonly id: number;
  readonly name: string;
  readonly spec: string;
  readonly state: Exclude<FleetState, "pending">;
  readonly created_at: number;
  readonly ended_at: number | null;
}

export function itemCounts({ total, running, done, failed, pending }: FleetRow): ItemCounts {
  return { total, queued: total - done - running, running, done, failed, pending };
}

export function recordOf(row: FleetRow): FleetRecord {
  return {
    id: row.name,
    spec: JSON.parse(row.spec) as FleetSpec,
    state: row.state === "done" && row.pending > 0 ? "pending" : row.state,
    owner: row.owner === null ? null : processOf(row.owner),
    createdAt: new Date(row.created_at).toISOString(),
    endedAt: row.ended_at === null ? null : new Date(row.ended_at).toISOString(),
    why: row.why,
    counts: itemCounts(row),
  };
}

const STORE = /\|store-[0-9a-f]{12}$/;

/** The process of an owner (`newStoreOwner` of PostgreSQL). */
export function processOf(owner: string): string {
  return owner.replace(STORE, "");
}
