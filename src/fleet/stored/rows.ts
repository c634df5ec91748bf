import type { FleetSpec, ItemResult, Reviewed, StoredItem } from "../model/item.ts";
import type { ItemCounts, NotTaken } from "../model/queue.ts";
import type { ApplyingItem, FleetRecord, FleetState, Pace } from "../model/store.ts";
import { streamsFrom } from "./request-batches.ts";

/** `away`: a machine runs it; `delivered`: it waits for its coordinator; `applying`: its effect has begun. */
export function outerState(state: string): StoredItem["state"] {
  return state === "queued" || state === "done" ? state : "running";
}

/** A fleet as `read.sql` reads it. Its cost does not depend on the number of items: results are tallied as they come, and few items run at once. */
export interface FleetRow extends Pick<FleetRecord, "owner" | "why">, Omit<ItemCounts, "queued"> {
  /** The row's number in the database. */
  readonly id: number;
  readonly name: string;
  readonly spec: string;
  readonly state: Exclude<FleetState, "pending">;
  readonly created_at: number;
  readonly ended_at: number | null;
}

export function itemCounts({ total, running, done, failed, pending }: FleetRow): ItemCounts {
  return { total, queued: total - done - running, running, done, failed, pending };
}

/** How a fleet ends that this process runs; null: items are left, or another owner runs it. */
export function endOf(row: FleetRow, self: string): "cancelled" | "done" | null {
  const { queued, running } = itemCounts(row);
  if (row.owner !== self || queued + running > 0 || !["running", "cancelled"].includes(row.state)) return null;
  return row.state === "cancelled" ? "cancelled" : "done";
}

export function recordOf(row: FleetRow): FleetRecord {
  return {
    id: row.name,
    spec: JSON.parse(row.spec) as FleetSpec,
    state: row.state === "done" && row.pending > 0 ? "pending" : row.state,
    owner: row.owner === null ? null : processOf(row.owner),
    createdAt: new Date(row.created_at).toISOString(),
    endedAt: row.ended_at === null ? null : new Date(row.ended_at).toISOString(),
    why: row.why,
    counts: itemCounts(row),
  };
}

const STORE = /\|store-[0-9a-f]{12}$/;

/** The process of an owner (`newStoreOwner` of PostgreSQL). */
export function processOf(owner: string): string {
  return owner.replace(STORE, "");
}

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

/** An item whose effect has begun, with its intent. */
export interface ApplyingRow extends Omit<ApplyingItem, "intent"> {
  readonly json: string;
  readonly cacheKey: string | null;
  readonly printed: boolean | number;
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
  readonly fields: string | null;
}

export function applyingFrom(row: ApplyingRow): ApplyingItem {
  const { json, cacheKey, printed, fields, stdout, stderr, ...item } = row;
  const kept = JSON.parse(json) as Omit<ItemResult, "fields">;
  const result: ItemResult = { ...kept, fields: JSON.parse(fields ?? "{}") as ItemResult["fields"] };
  const streams = printed ? streamsFrom({ stdout, stderr }, result.output) : null;
  return { ...item, intent: { result, cacheKey, streams } };
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

/** The answer to an attempt that does not count. `item`: as it is now; while it is `running`, this attempt has begun its effect. */
export function fencedOff(
  index: number,
  attempt: number,
  item: { readonly state: string; readonly attempt: number },
): NotTaken {
  if (item.state === "running" && item.attempt === attempt)
    return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} has begun to change files` };
  const instead = item.state === "queued" ? "the item waits for a retry" : `attempt ${item.attempt} is ${item.state}`;
  return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} no longer counts: ${instead}` };
}

/** The answer to a process that does not own the fleet any more. `isInherited`: see {@link NotTaken}. */
export function takenFrom(index: number, attempt: number, isInherited: boolean): NotTaken {
  const reason = `another process took over the fleet, so this one records nothing of attempt ${attempt} of item ${index}`;
  return { ok: false, code: "taken", reason, isInherited };
}
