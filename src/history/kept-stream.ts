import { closeSync, constants, openSync, writeSync } from "node:fs";
import { readdir, readFile, unlink } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../platform/errno.ts";

export type StreamName = "stdout" | "stderr";
export const STREAMS: readonly StreamName[] = ["stdout", "stderr"];

/**
 * A stream is kept in pieces of this size, each a file that is named by its number. So the offset of each byte is known, and
 * what is dropped is whole files: nothing is ever rewritten.
 */
export const PIECE_BYTES = 256 * 1024;
/** 512 KiB. */
const FIRST_PIECES = 2;
/** The last one may be almost empty: at least 512 KiB. */
const LAST_PIECES = 3;
/** The most that is kept of both streams of a run. */
export const MAX_STREAMS_BYTES = STREAMS.length * (FIRST_PIECES + LAST_PIECES) * PIECE_BYTES;

const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND | constants.O_NOFOLLOW;

/** Writes one stream of a run: its beginning and its end are kept. Throws if the disk refuses it. */
export class StreamWriter implements Disposable {
  readonly #dir: string;
  readonly #name: StreamName;
  #bytes = 0;
  #file: number | null = null;

  constructor(dir: string, name: StreamName) {
    this.#dir = dir;
    this.#name = name;
  }

  get bytes(): number {
    return this.#bytes;
  }

  write(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      const room = PIECE_BYTES - (this.#bytes % PIECE_BYTES);
      this.#file ??= this.#next();
      const written = writeSync(this.#file, rest.subarray(0, room));
      this.#bytes += written;
      rest = rest.subarray(written);
      if (this.#bytes % PIECE_BYTES === 0) this[Symbol.dispose]();
    }
  }

  [Symbol.dispose](): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #next(): number {
    const piece = Math.floor(this.#bytes / PIECE_BYTES);
    const file = openSync(join(this.#dir, `${this.#name}.${piece}`), NEW, 0o600);
    const dropped = piece - LAST_PIECES;
    // It may be gone already, with the rest of the record.
    if (dropped >= FIRST_PIECES) unlink(join(this.#dir, `${this.#name}.${dropped}`)).catch(() => {});
    return file;
  }
}

/** A part of a stream that is still there. */
export interface KeptPiece {
  /** Of its first byte in the stream. */
  readonly offset: number;
  readonly bytes: Buffer;
}

/** What is kept of a stream from `offset` on, one piece at a time. Pieces that were dropped are left out. */
export async function* keptPieces(
  dir: string,
  name: StreamName,
  offset = 0,
): AsyncGenerator<KeptPiece, void, undefined> {
  const numbers = pieceNumbers(await readdir(dir).catch(nullFor("ENOENT")), name);
  for (const number of numbers.filter((piece) => (piece + 1) * PIECE_BYTES > offset)) {
    const start = number * PIECE_BYTES;
    const file = await readFile(join(dir, `${name}.${number}`)).catch(nullFor("ENOENT"));
    const from = Math.max(0, offset - start);
    if (file !== null && file.length > from) yield { offset: start + from, bytes: file.subarray(from, PIECE_BYTES) };
  }
}

/** In order. `names`: of the files of a record. */
export function pieceNumbers(names: readonly string[] | null, name: StreamName): number[] {
  return (names ?? [])
    .flatMap((file) => {
      const [, stream, number] = /^(stdout|stderr)\.(\d{1,9})$/.exec(file) ?? [];
      return stream === name ? [Number(number)] : [];
    })
    .toSorted((a, b) => a - b);
}
