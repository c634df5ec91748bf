import type { FleetSpec } from "./model/item.ts";
import { LONGEST_DELAY_MS } from "./model/queue.ts";

/** Attempts if the Engine failed, which says nothing about the item. */
const MAX_LOST_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;

/** Statuses that are never retried: success, also an earlier one, and decisions of the project or of a person. */
const FINAL = new Set(["succeeded", "cached", "refused", "denied", "cancelled", "pending"]);

/** The delay before the next attempt in milliseconds; null if this result counts. `attempt` starts at 1. */
export function retryInMs(status: string, attempt: number, { retries }: Pick<FleetSpec, "retries">): number | null {
  if (FINAL.has(status)) return null;
  const attempts = status === "lost" ? Math.max(MAX_LOST_ATTEMPTS, 1 + retries) : 1 + retries;
  if (attempt >= attempts) return null;
  return Math.min(FIRST_BACKOFF_MS * 2 ** (attempt - 1), LONGEST_DELAY_MS);
}
