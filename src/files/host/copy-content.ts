import fs from "node:fs";
import type { ByteSource } from "../read/byte-source.ts";
import { writeAll } from "./content.ts";
import type { Descriptor } from "./descriptor.ts";

/** How much is held in memory at a time, and the smallest hole that is kept. */
const PIECE_BYTES = 256 * 1024;

/**
 * Copies what the source had when it was opened into an empty file; answers how many bytes that was. Where it holds
 * nothing but zeros for a while nothing is written: a file that takes no room must not take any when it is copied.
 */
export async function copyContent(source: ByteSource, to: Descriptor, signal?: AbortSignal): Promise<number> {
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
