import { createHash } from "node:crypto";
import fs from "node:fs";
import { contentOf, writeAll } from "../files/host/content.ts";
import type { Descriptor } from "../files/host/descriptor.ts";
import type { Blob, Content, Digest } from "./blob.ts";

const PIECE_BYTES = 256 * 1024;

/** What a regular file, open for reading, had when this was called. */
export async function* piecesOf(file: Descriptor, signal?: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
  const source = contentOf(file);
  for (let at = 0; at < source.size; ) {
    signal?.throwIfAborted();
    const piece = await source.read(at, PIECE_BYTES);
    if (piece.length === 0) return;
    at += piece.length;
    yield piece;
  }
}

/** The file as a blob. Null if it changed while it was read. */
export async function blobOf(file: Descriptor, signal?: AbortSignal): Promise<Blob | null> {
  const source = contentOf(file);
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const piece of piecesOf(file, signal)) {
    hash.update(piece);
    bytes += piece.length;
  }
  if (bytes !== source.size || source.changed()) return null;
  return { digest: hash.digest("hex") as Digest, bytes };
}

/**
 * Writes content into an empty file and returns the number of bytes. Pieces of zeros become holes, so that a sparse file takes
 * no more space than where it comes from.
 */
export async function fillFile(file: Descriptor, content: Content): Promise<number> {
  let bytes = 0;
  for await (const piece of content) {
    if (!isZeros(piece)) await writeAll(file, piece, bytes);
    bytes += piece.length;
  }
  fs.ftruncateSync(file.fd, bytes);
  return bytes;
}

function isZeros(piece: Uint8Array): boolean {
  return (
    piece.length > 4096 &&
    piece[0] === 0 &&
    Buffer.from(piece.buffer, piece.byteOffset, piece.length).equals(Buffer.alloc(piece.length))
  );
}
