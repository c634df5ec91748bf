import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import { openRegular } from "../platform/open-regular.ts";

/** Opens a trail for reading. Null if there is none. */
export async function openTrail(path: string): Promise<FileHandle | null> {
  return await openRegular(path, constants.O_RDONLY).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  });
}

/** One line of a file. `start` and `end` are in bytes; `end` is after the line break, if there is one. */
export interface Line {
  /** From 1, counted from where reading began. */
  readonly number: number;
  readonly start: number;
  readonly end: number;
  /** Without the line break. Null for a line that is longer than any record. */
  readonly bytes: Buffer | null;
  readonly terminated: boolean;
}

const CHUNK_BYTES = 256 * 1024;
/** Longer than any record (see `bounded.ts`). */
const MAX_LINE_BYTES = 1024 * 1024;
const LINE_BREAK = 0x0a;

/** The lines between two positions of a file, in groups. At most one line and one chunk are in memory. */
export async function* linesOf(handle: FileHandle, from: number, to: number): AsyncGenerator<readonly Line[]> {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  let number = 1;
  let start = from;
  const line = (end: number, terminated: boolean): Line => {
    const bytes = keptBytes > MAX_LINE_BYTES ? null : Buffer.concat(kept);
    const made = { number, start, end, bytes, terminated };
    kept = [];
    keptBytes = 0;
    number += 1;
    start = end;
    return made;
  };
  const keep = (bytes: Buffer): void => {
    keptBytes += bytes.length;
    if (keptBytes > MAX_LINE_BYTES) kept = [];
    else kept.push(bytes);
  };
  let at = from;
  while (at < to) {
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, to - at));
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, at);
    if (bytesRead === 0) break;
    const lines: Line[] = [];
    let begin = 0;
    for (let found = chunk.indexOf(LINE_BREAK); found >= 0 && found < bytesRead; ) {
      keep(chunk.subarray(begin, found));
      lines.push(line(at + found + 1, true));
      begin = found + 1;
      found = chunk.indexOf(LINE_BREAK, begin);
    }
    if (begin < bytesRead) keep(chunk.subarray(begin, bytesRead));
    at += bytesRead;
    yield lines;
  }
  if (at > start) yield [line(at, false)];
}
