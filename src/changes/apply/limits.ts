import { formatBytes } from "../../sandbox/units.ts";
import type { Changeset } from "../model/changeset.ts";

/** How large what is applied may be: one file, and all of them. By what a file seems to hold, holes included. */
export interface ApplyLimits {
  readonly fileBytes: number;
  readonly totalBytes: number;
}

/** Where the caller says nothing. A scan has already held each file against its own directory's limits. */
export const DEFAULT_LIMITS: ApplyLimits = { fileBytes: 4 * 1024 ** 3, totalBytes: 16 * 1024 ** 3 };

/** Why a file is too large, by the index of its change. Decided before anything is copied, and the same every time. */
export function tooLarge(
  { changes }: Pick<Changeset, "changes">,
  which: ReadonlySet<number>,
  { fileBytes, totalBytes }: ApplyLimits,
): ReadonlyMap<number, string> {
  const reasons = new Map<number, string>();
  let left = totalBytes;
  for (const { index, type, next, refusal } of changes) {
    if (!which.has(index) || refusal !== null || type !== "file" || next === null) continue;
    if (next.size > fileBytes)
      reasons.set(index, `it has ${formatBytes(next.size)}; at most ${formatBytes(fileBytes)}`);
    else if (next.size > left) reasons.set(index, `with it, more than ${formatBytes(totalBytes)} would be written`);
    else left -= next.size;
  }
  return reasons;
}
