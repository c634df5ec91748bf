import fs from "node:fs";
import { writeAll } from "../../files/host/content.ts";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { ByteSource } from "../../files/read/byte-source.ts";

/** How much is held in memory at a time, and the smallest hole that is kept. */
const PIECE_BYTES = 256 * 1024;

/** Copies all of a source into an empty file; where it holds nothing but zeros for a while, nothing is written. */
export async function copySparsely(source: ByteSource, to: Descriptor, signal?: AbortSignal): Promise<number> {
  const zeros = Buffer.alloc(Math.min(PIECE_BYTES, source.size));
  let position = 0;
  while (position < source.size) {
    signal?.throwIfAborted();
    const piece = await source.read(position, PIECE_BYTES);
    if (piece.length === 0) break;
    if (!piece.equals(zeros.subarray(0, piece.length))) await writeAll(to, piece, position);
    position += piece.length;
  }
  fs.ftruncateSync(to.fd, position);
  return position;
}
