import { deflateRawSync, inflateRawSync } from "node:zlib";
import type { ItemStreams } from "../model/stored-item.ts";
import type { Database } from "./database.ts";

/** Characters that are kept of each stream. */
const HEAD_CHARS = 16 * 1024;
const TAIL_CHARS = 48 * 1024;
/** Bytes that one fleet may keep, compressed. An item that ends later keeps only the last characters. */
const MAX_FLEET_BYTES = 256 * 1024 ** 2;
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

/** The streams of one fleet, within its budget. */
export class StreamStore {
  readonly #db: Database;
  readonly #fleet: number;
  #bytes: number | null = null;

  constructor(db: Database, fleet: number) {
    this.#db = db;
    this.#fleet = fleet;
  }

  /** Encoded outside of the transaction. `output`: of the result, if it is whole. */
  encoded({ stdout, stderr }: ItemStreams, output: unknown): readonly [Buffer | null, Buffer | null] {
    const isLate = this.#used() >= MAX_FLEET_BYTES;
    const out = stdout !== "" && stdout === output ? Buffer.of(AS_OUTPUT) : encoded(stdout, isLate);
    const err = encoded(stderr, isLate);
    this.#bytes = this.#used() + (out?.length ?? 0) + (err?.length ?? 0);
    return [out, err];
  }

  /** In place of what an earlier attempt printed. */
  keep(item: number, [stdout, stderr]: readonly [Uint8Array | null, Uint8Array | null], isFirst: boolean): void {
    if (stdout === null && stderr === null) {
      if (!isFirst) this.#db.run("DELETE FROM streams WHERE item = ?", item);
    } else this.#db.run("INSERT OR REPLACE INTO streams (item, stdout, stderr) VALUES (?, ?, ?)", item, stdout, stderr);
  }

  #used(): number {
    this.#bytes ??=
      this.#db.get<{ bytes: number }>(
        `SELECT coalesce(sum(coalesce(length(stdout), 0) + coalesce(length(stderr), 0)), 0) AS bytes
         FROM items JOIN streams ON streams.item = items.id WHERE fleet = ?`,
        this.#fleet,
      )?.bytes ?? 0;
    return this.#bytes;
  }
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

function bounded(text: string, head: number, tail: number): string {
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
