/** What a text says, or why it says nothing that can be worked with. */
export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly problem: string };

/** Parses what a worker wrote. Never throws, and neither does writing the value out again. */
export function parseJson(text: string): ParsedJson {
  if (depthOf(text) > MAX_JSON_DEPTH)
    return { ok: false, problem: `it is nested more than ${MAX_JSON_DEPTH} levels deep` };
  try {
    return { ok: true, value: JSON.parse(text) };
  } catch (error) {
    return { ok: false, problem: (error as Error).message };
  }
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);

/** How deep brackets stand in each other, those inside strings aside. Of a text that is no JSON, some number. */
function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let quoted = false;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (quoted && unit === BACKSLASH) index += 1;
    else if (unit === QUOTE) quoted = !quoted;
    else if (!quoted && OPENING.has(unit)) deepest = Math.max(deepest, ++depth);
    else if (!quoted && CLOSING.has(unit)) depth -= 1;
  }
  return deepest;
}

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
