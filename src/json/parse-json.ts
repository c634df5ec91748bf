import { z } from "zod";

export interface TextLimits {
  readonly maxBytes: number;
  /** Called with the size of each chunk. False: there is no room for it. */
  readonly take?: (bytes: number) => boolean;
  /** How much of a longer text is still read and dropped, so that its sender can read the answer. Absent: nothing. */
  readonly maxDroppedBytes?: number;
}

/** Reads a stream as UTF-8 text. Null if it is too long. */
export async function boundedText(
  chunks: AsyncIterable<Buffer | string>,
  { maxBytes, take = () => true, maxDroppedBytes = 0 }: TextLimits,
): Promise<string | null> {
  const kept: Buffer[] = [];
  let bytes = 0;
  let fits = true;
  for await (const chunk of chunks) {
    const buffer = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    bytes += buffer.length;
    fits &&= bytes <= maxBytes && take(buffer.length);
    if (fits) kept.push(buffer);
    else kept.length = 0;
    if (!fits && bytes > maxDroppedBytes) break;
  }
  return fits ? Buffer.concat(kept).toString("utf8") : null;
}

/** Counts the bytes of all open requests of a server, from their first byte until they are answered. */
export class OpenBytes {
  readonly #max: number;
  #bytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** False if there is no room for the bytes, which are then not counted. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > this.#max) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** Up to so many values, every fault is looked for. In a larger value the first one is enough: each fault costs more than its value. */
const MAX_VALUES_WITH_ALL_FAULTS = 1000;
const MAX_FAULTS = 20;
const MAX_CHARS = 4000;
/** What `z.validate` sets, which says only whether there is a fault. */
const AT_THE_FIRST: z.core.ParseContext<z.core.$ZodIssue> & { readonly abortEarly: true } = { abortEarly: true };

/** What a stranger sent, as its schema has it. The time that this takes is bounded by the size of the value, whatever is wrong with it. */
export function examine<Schema extends z.ZodType>(
  schema: Schema,
  raw: unknown,
): z.ZodSafeParseResult<z.output<Schema>> {
  return schema.safeParse(raw, hasMoreValues(raw, MAX_VALUES_WITH_ALL_FAULTS) ? AT_THE_FIRST : undefined);
}

/** The first faults, for who sent the value. `describe` writes them. */
export function firstFaults(
  { issues }: z.ZodError,
  describe: (issues: readonly z.core.$ZodIssue[]) => string = (some) => z.prettifyError({ issues: [...some] }),
): string {
  return describe(issues.slice(0, MAX_FAULTS)).slice(0, MAX_CHARS);
}

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

/** Why nothing should be made of a JSON text: its depth, or the number of its values or names. Null: nothing is against it. */
export function shapeProblem(text: string, maxValues: number, maxDepth = MAX_JSON_DEPTH): string | null {
  const shape = new JsonShape(maxValues, maxDepth);
  for (let at = 0; at < text.length; at += PIECE_CHARS) {
    const problem = shape.see(Buffer.from(text.slice(at, at + PIECE_CHARS)));
    if (problem !== null) return problem;
  }
  return null;
}

const PIECE_CHARS = 64 * 1024;

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
/** Of a list and of an object: the two pairs differ in the same bit. */
const [OPENING, CLOSING, OF_AN_OBJECT] = [0x5b, 0x5d, 0x20];

/**
 * The nesting depth of brackets outside of strings, about how many values there are (one for each bracket and comma), and how many names of
 * fields that occur once. Meaningless if the text is not JSON. It takes the text in pieces as they come: nothing is made of it before all are known.
 */
export class JsonShape {
  readonly #maxValues: number;
  readonly #maxDepth: number;
  /** Of each bracket that is open, by its depth. */
  readonly #fields: number[] = [0];
  readonly #names = new Set<number>();
  /** Fields of objects that have so many that each takes as long as one with a name of its own. */
  #further = 0;
  #depth = 0;
  #values = 1;
  #escapes = 0;
  #quoted = false;
  #escaped = false;
  /** Of the string so far. */
  #hash = 0;
  #length = 0;

  constructor(maxValues = MAX_JSON_VALUES, maxDepth = MAX_JSON_DEPTH) {
    this.#maxValues = maxValues;
    this.#maxDepth = maxDepth;
  }

  /** The next piece, in UTF-8. What is against the text so far; null: nothing. */
  see(bytes: Buffer): string | null {
    let quoted = this.#quoted;
    let escaped = this.#escaped;
    let hash = this.#hash;
    let length = this.#length;
    /** Bytes of a string without an escape, until now. */
    let plain = 0;
    for (let index = 0; index < bytes.length; index += 1) {
      if (plain > LONG_BYTES && quoted) {
        const end = endOfPlain(bytes, index);
        length += end - index;
        index = end;
        plain = 0;
        if (index === bytes.length) break;
      }
      const byte = bytes[index] ?? 0;
      if (quoted) {
        length += 1;
        plain += 1;
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) {
          escaped = true;
          plain = 0;
          this.#escapes += 1;
        } else if (byte === QUOTE) quoted = false;
        hash = Math.imul(hash ^ byte, 0x01000193);
      } else if (byte === QUOTE) {
        quoted = true;
        hash = HASH_START;
        length = 0;
        plain = 0;
      } else if (byte === COMMA) this.#values += 1;
      else if (byte === COLON) this.#named(hash, length);
      else if ((byte & ~OF_AN_OBJECT) === OPENING) {
        this.#values += 1;
        this.#depth += 1;
        if (this.#depth > this.#maxDepth) return `it is nested more than ${this.#maxDepth} levels deep`;
        this.#fields[this.#depth] = 0;
      } else if ((byte & ~OF_AN_OBJECT) === CLOSING) this.#depth = Math.max(0, this.#depth - 1);
    }
    this.#quoted = quoted;
    this.#escaped = escaped;
    this.#hash = hash;
    this.#length = length;
    if (this.#names.size + this.#further > MAX_JSON_NAMES)
      return `its objects have more than ${MAX_JSON_NAMES} fields with different names`;
    if (this.#escapes > MAX_JSON_ESCAPES) return `its texts have more than ${MAX_JSON_ESCAPES} escaped characters`;
    return this.#values > this.#maxValues ? `it has more than ${this.#maxValues} values` : null;
  }

  /** What is skipped of a long name is not in its hash: it counts as a new one. */
  #named(hash: number, length: number): void {
    const fields = (this.#fields[this.#depth] ?? 0) + 1;
    this.#fields[this.#depth] = fields;
    if (fields > MANY_FIELDS || length > LONG_BYTES) this.#further += 1;
    else if (this.#names.size <= MAX_JSON_NAMES) this.#names.add(hash);
  }
}

/** From here on a search of Node is quicker than to look at each byte. */
const LONG_BYTES = 100;

/** Where the next quote or backslash is; the end if there is none. */
function endOfPlain(bytes: Buffer, from: number): number {
  const quote = bytes.indexOf(QUOTE, from);
  const end = quote < 0 ? bytes.length : quote;
  const backslash = bytes.subarray(from, end).indexOf(BACKSLASH);
  return backslash < 0 ? end : from + backslash;
}

/** FNV-1a, in 32 bits. Two names that have the same hash count as one. */
const HASH_START = 0x811c9dc5;
/** From about so many fields on, an object is a table, in which each takes as long as a new name. */
const MANY_FIELDS = 1000;

/** More than any input or output needs. Serializing recurses as deep as the value, so a worker must not choose the depth. */
export const MAX_JSON_DEPTH = 500;

/** Each value costs far more time and memory than its characters, for everything that is done with it. */
export const MAX_JSON_VALUES = 500_000;

/** A parser makes a shape for each list of names: one that occurs once takes a hundred times as long as a value. */
export const MAX_JSON_NAMES = 50_000;

/** Each takes many times as long as a plain character. */
const MAX_JSON_ESCAPES = 10_000_000;

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

/** Where a text stops being JSON, as an offset from 0. The parser's message contains it for some faults; of an unexpected token it contains only the text. */
export function jsonFaultOffset(text: string, message: string): number {
  const told = / at position (\d+)/.exec(message)?.[1];
  if (told !== undefined) return Number(told);
  if (!message.startsWith("Unexpected token")) return text.length;
  // Every beginning that holds the token has the same fault, and no shorter one has it.
  let [sound, faulty] = [0, text.length];
  while (faulty - sound > 1) {
    const middle = (sound + faulty) >> 1;
    if (hasUnexpectedToken(text.slice(0, middle))) faulty = middle;
    else sound = middle;
  }
  return sound;
}

function hasUnexpectedToken(text: string): boolean {
  try {
    JSON.parse(text);
    return false;
  } catch (error) {
    return (error as Error).message.startsWith("Unexpected token");
  }
}

/**
 * The characters of all texts and field names of a value, plus one for each value: about its length as JSON, without
 * serializing it. It goes level by level, so it cannot overflow the stack.
 */
export function charactersIn(json: unknown): number {
  let characters = 0;
  for (let level: readonly unknown[] = [json]; level.length > 0; ) {
    const next: unknown[] = [];
    for (const value of level) {
      characters += typeof value === "string" ? value.length + 1 : 1;
      if (typeof value !== "object" || value === null) continue;
      if (Array.isArray(value)) for (const part of value) next.push(part);
      else
        for (const [name, part] of Object.entries(value)) {
          characters += name.length;
          next.push(part);
        }
    }
    level = next;
  }
  return characters;
}
