import type { StoredItem } from "../model/stored-item.ts";

/** In SQL: items that are running, as everybody else says it. */
export const ACTIVE = "state IN ('running', 'away', 'delivered', 'applying')";

/** `away`: a machine runs it; `delivered`: it waits for its coordinator; `applying`: its effect has begun. */
export function outerState(state: string): StoredItem["state"] {
  return state === "queued" || state === "done" ? state : "running";
}
