import { deflateRawSync, inflateRawSync } from "node:zlib";
import type { ItemStreams } from "../model/item.ts";

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
