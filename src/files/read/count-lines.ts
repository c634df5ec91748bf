import type { ByteSource } from "./byte-source.ts";

export const NEWLINE = 0x0a;
/** How much is held in memory at a time. */
export const CHUNK_BYTES = 1024 ** 2;
/** The most that is read only to count lines. */
const MAX_COUNTED_BYTES = 64 * 1024 ** 2;

/** Where a line begins. If `position` is null, the file has no such line, and `lines` is how many it has. */
export interface LineStart {
  readonly position: number | null;
  readonly lines: number;
}

/** `line` counts from 1. Reads the file in chunks up to that line. */
export async function findLine(source: ByteSource, line: number, signal?: AbortSignal): Promise<LineStart> {
  let newlines = 0;
  let endsInNewline = true;
  let position = 0;
  while (newlines < line - 1) {
    signal?.throwIfAborted();
    const chunk = await source.read(position, CHUNK_BYTES);
    if (chunk.length === 0) return { position: null, lines: newlines + (endsInNewline ? 0 : 1) };
    let at = -1;
    while (newlines < line - 1) {
      at = chunk.indexOf(NEWLINE, at + 1);
      if (at < 0) break;
      newlines++;
    }
    endsInNewline = chunk.at(-1) === NEWLINE;
    position += at < 0 ? chunk.length : at + 1;
  }
  // A newline ends a line, so nothing begins after the last one.
  if (position >= source.size && line > 1) return { position: null, lines: newlines };
  return { position, lines: newlines };
}

/** The number of lines that begin at or after `position`. Null if counting would take too long. */
export async function countLinesFrom(
  source: ByteSource,
  position: number,
  signal?: AbortSignal,
): Promise<number | null> {
  if (source.size - position > MAX_COUNTED_BYTES) return null;
  let lines = 0;
  let last = NEWLINE;
  for (let from = position; from < source.size; ) {
    signal?.throwIfAborted();
    const chunk = await source.read(from, CHUNK_BYTES);
    if (chunk.length === 0) break;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines++;
    last = chunk.at(-1) ?? NEWLINE;
    from += chunk.length;
  }
  return last === NEWLINE ? lines : lines + 1;
}
