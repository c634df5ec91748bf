import type { ItemResult, Reviewed } from "../model/item.ts";

const MAX_RESULT_BYTES = 64 * 1024;
const MAX_MESSAGE_CHARACTERS = 4096;

/** `isWhole`: the output was not cut. */
export interface BoundedResult {
  readonly json: string;
  readonly isWhole: boolean;
}

/** A result as JSON of at most 64 KiB. An output that is too long is kept as text, cut, with a mark. */
export function boundedResult(result: ItemResult): BoundedResult {
  // The fields are those of the request.
  const { fields: _, error, ...rest } = result;
  const kept = { ...rest, error: error && { ...error, message: cut(error.message, MAX_MESSAGE_CHARACTERS) } };
  const json = JSON.stringify(kept);
  if (Buffer.byteLength(json) <= MAX_RESULT_BYTES) return { json, isWhole: true };
  const text = typeof kept.output === "string" ? kept.output : JSON.stringify(kept.output);
  // A character takes up to six bytes of JSON, so the text is shortened until it fits.
  for (let characters = MAX_RESULT_BYTES; characters >= 1; characters = Math.floor(characters * 0.8)) {
    const shorter = JSON.stringify({ ...kept, output: cut(text, characters) });
    if (Buffer.byteLength(shorter) <= MAX_RESULT_BYTES) return { json: shorter, isWhole: false };
  }
  return { json: JSON.stringify({ ...kept, output: cut(text, 0) }), isWhole: false };
}

function cut(text: string, characters: number): string {
  if (text.length <= characters) return text;
  return `${text.slice(0, characters).toWellFormed()}… (${text.length - characters} characters more)`;
}

/** What is kept of an item that has ended. */
export interface ResultRow {
  readonly position: number;
  readonly key: string;
  readonly attempt: number;
  readonly status: string;
  readonly run: string | null;
  readonly ended_at: number;
  readonly json: string | null;
  readonly fields: string | null;
  readonly why: string | null;
}

const NEWER = { stderrLine: null };

/** An item that never ran has only its row. A result of an earlier Corral has fewer keys. */
export function resultFrom(row: ResultRow): ItemResult {
  const fields = JSON.parse(row.fields ?? "{}") as ItemResult["fields"];
  if (row.json !== null)
    return { ...NEWER, ...(JSON.parse(row.json) as Omit<ItemResult, "fields" | "stderrLine">), fields };
  return {
    stderrLine: null,
    fields,
    index: row.position,
    key: row.key,
    status: row.status,
    run: null,
    attempt: row.attempt,
    exitCode: null,
    output: null,
    error: { code: row.status, message: row.why ?? "the fleet was cancelled" },
    startedAt: null,
    endedAt: new Date(row.ended_at).toISOString(),
    durationMs: 0,
    memoryBytesPeak: null,
  };
}

/** The result of a pending item after a person's decision. */
export function reviewedResult(before: ItemResult, counts: Reviewed["counts"]): ItemResult {
  return { ...before, ...outcomeOf(counts), changeset: { id: null, counts } };
}

function outcomeOf(counts: Reviewed["counts"]): Pick<ItemResult, "error"> & { status: string } {
  const applied = counts.applied ?? 0;
  const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
  if (applied === all && all > 0) return { status: "applied", error: null };
  const message = `Of its ${all} changes, ${applied} were applied. The others were discarded or refused.`;
  if (applied === 0) return { status: "discarded", error: { code: "CHANGES_DISCARDED", message } };
  return { status: "partly_applied", error: { code: "CHANGES_PARTLY_APPLIED", message } };
}

/**
 * Bytes that sort paths by components, so that paths below a path follow it directly: `/a`, `/a/c`, `/a-b`. Each component
 * ends with a zero byte, which no path contains. Extra slashes are ignored.
 */
export function outputKey(path: string): Buffer {
  const parts = path.split("/").filter((part) => part !== "");
  return Buffer.from(parts.map((part) => `${part}\0`).join(""));
}

/** The path of a key. */
export function pathOf(bytes: Uint8Array): string {
  return `/${Buffer.from(bytes).toString("utf8").split("\0").slice(0, -1).join("/")}`;
}
