import { deflateRawSync, inflateRawSync } from "node:zlib";
import { z } from "zod";
import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import { examine } from "../../json/parse-json.ts";
import { sha256 } from "../../platform/sha256.ts";
import { APPROVAL_OPERATIONS } from "../../sandbox/approval.ts";
import { present } from "../../text/present.ts";
import type { FleetSpec, ItemRequest, ItemResult, ItemStreams, Reviewed, StoredItem } from "../model/item.ts";
import type { ItemCounts, NotTaken } from "../model/queue.ts";
import type { ApplyingItem, FleetRecord, FleetState, LoadProblem, Pace } from "../model/store.ts";

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
interface BoundedResult {
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

/** Characters that are kept of each stream. */
const HEAD_CHARS = 16 * 1024;
const TAIL_CHARS = 48 * 1024;
/** Bytes that one fleet may keep, compressed. An item that ends later keeps only the last characters. */
export const MAX_FLEET_BYTES = 256 * 1024 ** 2;
const LATE_CHARS = 2048;
/** Shorter texts do not become smaller. */
const MIN_DEFLATED_BYTES = 512;
/** Of compressed text, against a journal that was changed to expand without end. */
const MAX_TEXT_BYTES = 8 * (HEAD_CHARS + TAIL_CHARS);

/** How a stream is kept: the first byte of its blob. */
const PLAIN = 0;
const DEFLATED = 1;
/** It is the same text as the output in the result. */
const AS_OUTPUT = 2;

/** How streams are kept; null: empty. `output`: of the result, if it is whole. `isLate`: the fleet's budget is used up. */
export function encodedStreams(
  { stdout, stderr }: ItemStreams,
  output: unknown,
  isLate: boolean,
): readonly [Buffer | null, Buffer | null] {
  const out = stdout !== "" && stdout === output ? Buffer.of(AS_OUTPUT) : encoded(stdout, isLate);
  return [out, encoded(stderr, isLate)];
}

/** `output`: that of the item's result. */
export function streamsFrom(
  { stdout, stderr }: { readonly stdout: Uint8Array | null; readonly stderr: Uint8Array | null },
  output: unknown,
): ItemStreams {
  return { stdout: decoded(stdout, output), stderr: decoded(stderr, output) };
}

function encoded(text: string, isLate: boolean): Buffer | null {
  if (text === "") return null;
  const bytes = Buffer.from(isLate ? bounded(text, 0, LATE_CHARS) : bounded(text, HEAD_CHARS, TAIL_CHARS));
  if (bytes.length < MIN_DEFLATED_BYTES) return Buffer.concat([Buffer.of(PLAIN), bytes]);
  return Buffer.concat([Buffer.of(DEFLATED), deflateRawSync(bytes, { level: 1 })]);
}

/** As much of a stream as is kept. */
export function boundedStream(text: string): string {
  return bounded(text, HEAD_CHARS, TAIL_CHARS);
}

/** The beginning and the end of a text that is longer than both. */
export function bounded(text: string, head: number, tail: number): string {
  if (text.length <= head + tail) return text;
  const left = text.length - head - tail;
  return `${text.slice(0, head).toWellFormed()}\n… (${left} characters left out)\n${text.slice(-tail).toWellFormed()}`;
}

function decoded(blob: Uint8Array | null, output: unknown): string {
  if (blob === null) return "";
  const rest = Buffer.from(blob.buffer, blob.byteOffset + 1, blob.length - 1);
  if (blob[0] === AS_OUTPUT) return typeof output === "string" ? output : "";
  return (blob[0] === DEFLATED ? inflateRawSync(rest, { maxOutputLength: MAX_TEXT_BYTES }) : rest).toString();
}

const MAX_ITEMS = 10_000_000;
const MAX_KEY_BYTES = 4096;
/** A line of a manifest has at most 1 MiB, but templates may repeat its values. */
const MAX_REQUEST_BYTES = 4 * 1024 ** 2;
const BATCH_ITEMS = 500;
const BATCH_BYTES = 4 * 1024 ** 2;

/** A request with its JSON. */
export interface RequestRow {
  readonly request: ItemRequest;
  readonly json: string;
}

type Batch =
  | { readonly ok: true; readonly rows: readonly RequestRow[] }
  | { readonly ok: false; readonly problem: LoadProblem<never> };

/** Items in batches that are small enough for one transaction; the last one may be empty. A problem is the last. */
export async function* requestBatches(
  items: AsyncIterable<ItemRequest>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Batch, void, undefined> {
  let rows: RequestRow[] = [];
  let bytes = 0;
  let total = 0;
  for await (const request of items) {
    const row = { request, json: JSON.stringify(request) };
    const problem = unfit(row) ?? (total >= MAX_ITEMS ? { code: "too_many" as const, maxItems: MAX_ITEMS } : null);
    if (problem !== null) return yield { ok: false, problem };
    rows.push(row);
    total += 1;
    bytes += row.json.length;
    if (rows.length < BATCH_ITEMS && bytes < BATCH_BYTES) continue;
    signal?.throwIfAborted();
    yield { ok: true, rows };
    [rows, bytes] = [[], 0];
  }
  signal?.throwIfAborted();
  yield { ok: true, rows };
}

function unfit({ request: { key, place }, json }: RequestRow): LoadProblem<never> | null {
  const tooLarge = (bytes: number, maxBytes: number): LoadProblem<never> | null =>
    bytes > maxBytes ? { code: "too_large", place, bytes, maxBytes } : null;
  return tooLarge(Buffer.byteLength(key), MAX_KEY_BYTES) ?? tooLarge(Buffer.byteLength(json), MAX_REQUEST_BYTES);
}

/** `first`: the request that has the key already, as JSON. */
export function duplicateKey(
  first: string | undefined,
  { key, place }: Pick<ItemRequest, "key" | "place">,
): LoadProblem<never> {
  const earlier = JSON.parse(first ?? "{}") as Partial<ItemRequest>;
  return { code: "duplicate_key", key, places: [earlier.place ?? "", place] };
}

export function collided<Collisions>(collisions: Collisions | null): LoadProblem<Collisions> | null {
  return collisions === null ? null : { code: "collisions", collisions };
}

/* What a machine and a coordinator write to each other about a question. Each reads it as if an attacker had written it. */

const name = z.string().min(1).max(200);
const path = z.string().max(8192);
const text = z.string().max(256 * 1024);

const question = z.strictObject({
  worker: name,
  through: z.array(name).max(100).optional(),
  operations: z.array(z.enum(APPROVAL_OPERATIONS)).min(1).max(2),
  paths: z.array(path).max(50_000),
  to: z.string().max(300).optional(),
  callee: name.optional(),
  input: text.optional(),
  command: text.optional(),
  line: text.optional(),
  why: z.string().max(10_000).optional(),
  diff: text.optional(),
});

/** What a machine says of a question. Whose it is, the store knows. */
export type WireQuestion = z.infer<typeof question>;

export function questionJson(asked: ApprovalRequest): string {
  const { worker, through, operations, paths, to, callee, input, command, line, why, diff } = asked;
  return JSON.stringify({
    worker,
    through,
    operations,
    paths,
    to,
    callee,
    input,
    command,
    line,
    why,
    diff,
  });
}

/** Null if it has not the shape of a question. */
export function parsedQuestion(json: string): WireQuestion | null {
  const parsed = examine(question, jsonOf(json));
  return parsed.success ? parsed.data : null;
}

const answer = z.strictObject({
  /** Of the text of the question: an answer is to this one and no other. */
  question: z.string().length(64),
  outcome: z.enum(["approved", "denied", "timed_out"]),
  scope: z.enum(["once", "tree"]),
  reason: z.string().max(4000),
  by: z.string().max(1000).optional(),
});

const MAX_REASON = 2000;
const MAX_BY = 300;

/** A machine gets no answer for longer than a tree of runs: its coordinator's session is not its own. */
export function answerText(question: string, { outcome, scope, reason, by }: Decision): string {
  const lasting = scope === "once" ? "once" : "tree";
  const who = by === undefined ? {} : { by: by.slice(0, MAX_BY).toWellFormed() };
  const said = { outcome, scope: lasting, reason: reason.slice(0, MAX_REASON).toWellFormed(), ...who };
  return JSON.stringify({ question: sha256(question), ...said });
}

/** Null if it is no answer to the question with this text. */
export function parsedAnswer(question: string, json: string): Decision | null {
  const parsed = examine(answer, jsonOf(json));
  if (!parsed.success || parsed.data.question !== sha256(question)) return null;
  const { outcome, scope, reason, by } = parsed.data;
  return { outcome, scope, reason, ...present({ by }) };
}

function jsonOf(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
