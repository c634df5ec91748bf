/**
 * More than any input or output has. Writing JSON out takes a stack as deep as the value: nobody else must choose how deep.
 */
export const MAX_JSON_DEPTH = 500;

/** True for a value that is nested deeper than {@link MAX_JSON_DEPTH}. Goes level by level, so that no depth is too much for it. */
export function isTooDeep(json: unknown): boolean {
  let level: readonly unknown[] = [json];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_JSON_DEPTH) return true;
    level = level.flatMap((value) => (typeof value === "object" && value !== null ? Object.values(value) : []));
  }
  return false;
}
