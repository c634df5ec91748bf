/** The value of a JSON text, or why it has none. */
export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly problem: string };

/** Parses a worker's JSON. It never throws, and the value can always be serialized again. */
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

/** The nesting depth of brackets outside of strings. Meaningless if the text is not JSON. */
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

/** More than any input or output needs. Serializing recurses as deep as the value, so a worker must not choose the depth. */
export const MAX_JSON_DEPTH = 500;

/** True if a value is nested deeper than {@link MAX_JSON_DEPTH}. It goes level by level, so it cannot overflow the stack. */
export function isTooDeep(json: unknown): boolean {
  let level: readonly unknown[] = [json];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_JSON_DEPTH) return true;
    level = level.flatMap((value) => (typeof value === "object" && value !== null ? Object.values(value) : []));
  }
  return false;
}
