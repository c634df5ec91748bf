import type { ByteSource } from "../read/byte-source.ts";
import { writeAll } from "./content.ts";
import type { Descriptor } from "./descriptor.ts";

/** How much is held in memory at a time. */
const PIECE_BYTES = 1024 ** 2;

/** Copies what the source had when it was opened; answers how many bytes that was. */
export async function copyContent(source: ByteSource, to: Descriptor, signal?: AbortSignal): Promise<number> {
  let position = 0;
  while (position < source.size) {
    signal?.throwIfAborted();
    const piece = await source.read(position, PIECE_BYTES);
    if (piece.length === 0) break;
    await writeAll(to, piece, position);
    position += piece.length;
  }
  return position;
}
