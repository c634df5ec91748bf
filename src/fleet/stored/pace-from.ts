import type { Pace } from "../model/store.ts";

const RECENT_MS = 60_000;
/** Few rows are read, however many items there are. */
export const MOST_COUNTED = 500;
/** Of fewer items, a rate says nothing. */
const LEAST_COUNTED = 3;

export const UNKNOWN_PACE: Pace = { recentRate: null, leftMs: null };

/** `ended`: when the items before those that run ended; null: they have not. */
export function paceFrom(ended: readonly (number | null)[], left: number, nowMs: number): Pace {
  const recent = ended.filter((at): at is number => at !== null && at > nowMs - RECENT_MS);
  if (recent.length < LEAST_COUNTED) return UNKNOWN_PACE;
  const recentRate = (recent.length * 1000) / Math.max(1, nowMs - Math.min(...recent));
  return { recentRate, leftMs: (left * 1000) / recentRate };
}

/** Milliseconds since 1970. @throws RangeError if it is not a time */
export function msOf(iso: string): number {
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) throw new RangeError(`${iso} is not a time`);
  return ms;
}
