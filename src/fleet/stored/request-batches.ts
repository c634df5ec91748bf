import { deflateRawSync, inflateRawSync } from "node:zlib";
import type { ItemRequest, ItemStreams } from "../model/item.ts";
import type { LoadProblem } from "../model/store.ts";

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
