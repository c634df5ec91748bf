import type { FleetSpec } from "./model/item.ts";

/** Attempts at an item for which the Engine failed, which says nothing about the item. */
const MAX_LOST_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 30_000;

/** A result that another attempt cannot change, or that nobody wants changed: the project or a person stands against it. */
const FINAL = new Set(["succeeded", "refused", "denied", "cancelled"]);

/** In how many milliseconds the item is tried again; null where this result counts. `attempt` from 1. */
export function retryInMs(status: string, attempt: number, { retries }: Pick<FleetSpec, "retries">): number | null {
  if (FINAL.has(status)) return null;
  const attempts = status === "lost" ? Math.max(MAX_LOST_ATTEMPTS, 1 + retries) : 1 + retries;
  if (attempt >= attempts) return null;
  return Math.min(FIRST_BACKOFF_MS * 2 ** (attempt - 1), MAX_BACKOFF_MS);
}
