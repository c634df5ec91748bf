import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import { openRegular } from "../platform/write-file.ts";

/** Opens a trail for reading. Null if there is none. */
export async function openTrailToRead(path: string): Promise<FileHandle | null> {
  return await openRegular(path, constants.O_RDONLY).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  });
}

/** One line of a file. `start` and `end` are in bytes; `end` is after the line break, if there is one. */
export interface TrailLine {
  /** From 1, counted from where reading began. */
  readonly number: number;
  readonly start: number;
  readonly end: number;
  /** Without the line break. Null for a line that is longer than any record. */
  readonly bytes: Buffer | null;
  readonly terminated: boolean;
}

const CHUNK_BYTES = 256 * 1024;
/** Longer than any record (see `trail.ts`). */
const MAX_LINE_BYTES = 1024 * 1024;
const LINE_BREAK = 0x0a;

/** The lines between two positions of a file, in groups. At most one line and one chunk are in memory. */
export async function* linesOf(handle: FileHandle, from: number, to: number): AsyncGenerator<readonly TrailLine[]> {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  let number = 1;
  let start = from;
  const line = (end: number, terminated: boolean): TrailLine => {
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
    const lines: TrailLine[] = [];
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

/**
 * The lines that end at or before a position, the last first, in groups. A line that is not ended yet is left out. At most one line and one
 * chunk are in memory. `number` counts from the end.
 */
export async function* linesBack(handle: FileHandle, end: number): AsyncGenerator<readonly TrailLine[]> {
  let number = 1;
  /** The end of the line whose beginning is looked for, after its line break; null: not found yet. */
  let ended: number | null = null;
  let kept: Buffer[] = [];
  let keptBytes = 0;
  const keep = (bytes: Buffer): void => {
    keptBytes += bytes.length;
    if (keptBytes > MAX_LINE_BYTES) kept = [];
    else kept.unshift(bytes);
  };
  const line = (start: number): TrailLine[] => {
    if (ended === null) return [];
    const bytes = keptBytes > MAX_LINE_BYTES ? null : Buffer.concat(kept);
    const made = { number, start, end: ended, bytes, terminated: true };
    number += 1;
    [kept, keptBytes] = [[], 0];
    return [made];
  };
  for (let to = end; to > 0; ) {
    const from = Math.max(0, to - CHUNK_BYTES);
    const chunk = Buffer.alloc(to - from);
    await handle.read(chunk, 0, chunk.length, from);
    const lines: TrailLine[] = [];
    let rest = chunk.length;
    for (let at = chunk.lastIndexOf(LINE_BREAK); at >= 0; at = at === 0 ? -1 : chunk.lastIndexOf(LINE_BREAK, at - 1)) {
      if (ended !== null) keep(chunk.subarray(at + 1, rest));
      lines.push(...line(from + at + 1));
      ended = from + at + 1;
      rest = at;
    }
    if (ended !== null) keep(chunk.subarray(0, rest));
    to = from;
    if (to === 0) lines.push(...line(0));
    yield lines;
  }
}
