/** The limits on the parts of a record. */
interface Bounds {
  /** Characters of a text. */
  readonly text: number;
  /** Items of a list. */
  readonly list: number;
}

/** Tried in order, until the record is short enough. */
const BOUNDS: readonly Bounds[] = [
  { text: 4096, list: 1000 },
  { text: 512, list: 200 },
  { text: 128, list: 20 },
];
const MAX_RECORD_BYTES = 256 * 1024;
const MAX_NAMES = 100;
const MAX_DEPTH = 6;

/** A record as JSON of limited length. Cuts are marked with the amount that is missing. */
export function boundedJson(record: object): string {
  for (const bounds of BOUNDS) {
    const json = JSON.stringify(cut(record, bounds, 0));
    if (Buffer.byteLength(json) <= MAX_RECORD_BYTES) return json;
  }
  // Corral makes no such record: it has many long names, deeply nested.
  const { type } = record as { type?: unknown };
  return JSON.stringify({ type: cut(String(type), { text: 128, list: 0 }, 0), cut: "it was too large to record" });
}

function cut(value: unknown, bounds: Bounds, depth: number): unknown {
  if (typeof value === "string") return cutText(value, bounds.text);
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth >= MAX_DEPTH) return "…";
  if (Array.isArray(value)) {
    const kept = value.slice(0, bounds.list).map((item) => cut(item, bounds, depth + 1));
    return value.length > bounds.list ? [...kept, { more: value.length - bounds.list }] : kept;
  }
  const entries = Object.entries(value).filter(([, part]) => part !== undefined);
  const kept = entries.slice(0, MAX_NAMES).map(([name, part]) => [cutText(name, 128), cut(part, bounds, depth + 1)]);
  if (entries.length > MAX_NAMES) kept.push(["more", entries.length - MAX_NAMES]);
  return Object.fromEntries(kept);
}

function cutText(text: string, max: number): string {
  if (text.length <= max) return text.toWellFormed();
  return `${text.slice(0, max).toWellFormed()}… (${text.length - max} more characters)`;
}
