/** The value of a JSON text, or why it has none. */
export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly problem: string };

/** Parses a worker's JSON. It never throws, and the value can always be serialized again. `maxValues`, `maxDepth`: other than the usual limits. */
export function parseJson(text: string, maxValues = MAX_JSON_VALUES, maxDepth = MAX_JSON_DEPTH): ParsedJson {
  const problem = shapeProblem(text, maxValues, maxDepth);
  if (problem !== null) return { ok: false, problem };
  try {
    return { ok: true, value: JSON.parse(text) };
  } catch (error) {
    return { ok: false, problem: (error as Error).message };
  }
}

/** Why nothing should be made of a JSON text: its depth or the number of its values. Null: nothing is against it. */
export function shapeProblem(text: string, maxValues: number, maxDepth = MAX_JSON_DEPTH): string | null {
  const { depth, values } = shapeOf(text);
  if (depth > maxDepth) return `it is nested more than ${maxDepth} levels deep`;
  return values > maxValues ? `it has more than ${maxValues} values` : null;
}

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);

/**
 * The nesting depth of brackets outside of strings, and about how many values there are: one for each bracket and comma.
 * Meaningless if the text is not JSON. Nothing is made of the text before both are known.
 */
function shapeOf(text: string): { readonly depth: number; readonly values: number } {
  let depth = 0;
  let deepest = 0;
  let values = 1;
  let quoted = false;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (quoted && unit === BACKSLASH) index += 1;
    else if (unit === QUOTE) quoted = !quoted;
    else if (quoted) continue;
    else if (unit === COMMA) values += 1;
    else if (OPENING.has(unit)) {
      values += 1;
      deepest = Math.max(deepest, ++depth);
    } else if (CLOSING.has(unit)) depth -= 1;
  }
  return { depth: deepest, values };
}

/** More than any input or output needs. Serializing recurses as deep as the value, so a worker must not choose the depth. */
export const MAX_JSON_DEPTH = 500;

/** Each value costs far more time and memory than its characters, for everything that is done with it. */
export const MAX_JSON_VALUES = 500_000;

/** True if a value is nested deeper than {@link MAX_JSON_DEPTH}. It goes level by level, so it cannot overflow the stack. */
export function isTooDeep(json: unknown): boolean {
  let level: readonly object[] = isObject(json) ? [json] : [];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_JSON_DEPTH) return true;
    const next: object[] = [];
    for (const value of level) for (const part of partsOf(value)) if (isObject(part)) next.push(part);
    level = next;
  }
  return false;
}

/** True if a value has more than `max` parts, at any depth. It stops when it knows. */
export function hasMoreValues(json: unknown, max: number): boolean {
  const open: object[] = isObject(json) ? [json] : [];
  let count = 1;
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    const parts = partsOf(value);
    count += parts.length;
    if (count > max) return true;
    for (const part of parts) if (isObject(part)) open.push(part);
  }
  return false;
}

function partsOf(value: object): readonly unknown[] {
  return Array.isArray(value) ? value : Object.values(value);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
