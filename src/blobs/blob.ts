import { createHash } from "node:crypto";
import fs from "node:fs";
import { contentOf, writeAll } from "../files/host/content.ts";
import type { Descriptor } from "../files/host/descriptor.ts";

/** Blobs that are stored or fetched at the same time: most of the time is spent waiting for a disk or a network. */
const AT_ONCE = 8;

/** Rejects with the first failure, when all that had begun has ended. */
export async function inParallel<T>(all: readonly T[], each: (one: T) => Promise<void>): Promise<void> {
  const left = all.values();
  let failed = false;
  const work = async (): Promise<void> => {
    for (const one of left) {
      if (failed) return;
      await each(one).catch((error: unknown) => {
        failed = true;
        throw error;
      });
    }
  };
  const done = await Promise.allSettled(Array.from({ length: AT_ONCE }, work));
  for (const one of done) if (one.status === "rejected") throw one.reason;
}

declare const brand: unique symbol;

/** The SHA-256 of a blob, 64 hexadecimal digits: its only name. Made by {@link isDigest} and {@link blobDigest}. */
export type Digest = string & { readonly [brand]: "Digest" };

export function isDigest(text: string): text is Digest {
  return /^[0-9a-f]{64}$/.test(text);
}

export function blobDigest(content: Uint8Array): Digest {
  return createHash("sha256").update(content).digest("hex") as Digest;
}

export interface Blob {
  readonly digest: Digest;
  readonly bytes: number;
}

/** How content is handed on: never more than some hundred kilobytes at a time, unless the store reads it so. */
export type Content = AsyncIterable<Uint8Array>;

/**
 * Content that machines exchange, by its digest. Other machines write to a store, so nothing in it is believed: what is
 * read is compared with its digest.
 */
export interface BlobStore {
  /** Larger blobs are refused. */
  readonly maxBytes: number;
  /** Which of these it has. They count as used now: no sweep removes them before something refers to them. */
  has(digests: readonly Digest[]): Promise<ReadonlySet<Digest>>;
  /** Rejects with {@link BlobRefused} if the content is not the blob. Nothing of it is stored then. */
  put(blob: Blob, content: Content, signal?: AbortSignal): Promise<void>;
  /** What was stored so far survives a power failure. What is lost before is missing, and never there with other content. */
  flush(): Promise<void>;
  /**
   * At most `maxBytes` bytes. If the blob is missing, is larger or does not match its digest, reading fails with
   * {@link BlobRefused}: the last at the end, so nothing may be used before.
   */
  get(digest: Digest, maxBytes: number, signal?: AbortSignal): Content;
  /** Removes blobs that nothing refers to. */
  sweep(sweep: Sweep): Promise<Swept>;
}

export interface Sweep {
  /** Whether something refers to the blob. */
  readonly isKept: (digest: Digest) => boolean;
  /** A blob that was used since is kept: what refers to it may still be on its way. */
  readonly olderThanMs: number;
  readonly signal?: AbortSignal | undefined;
}

export interface Swept {
  readonly removed: number;
  readonly bytes: number;
}

/** A blob is not used. `message` says which, why, and is complete. */
export class BlobRefused extends Error {
  override readonly name = "BlobRefused";
  readonly code: "missing" | "too_large" | "mismatch" | "not_a_file";

  constructor(code: BlobRefused["code"], digest: string, reason: string, options?: ErrorOptions) {
    super(`blob ${digest.slice(0, 12)} is refused: ${reason}`, options);
    this.code = code;
  }
}

/** The same content; fails at the end if it is not the blob, and as soon as it is longer. */
export async function* verifiedContent(
  { digest, bytes }: { readonly digest: Digest; readonly bytes: number | { readonly atMost: number } },
  content: Content,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void, undefined> {
  const hash = createHash("sha256");
  const most = typeof bytes === "number" ? bytes : bytes.atMost;
  let read = 0;
  for await (const piece of content) {
    signal?.throwIfAborted();
    read += piece.length;
    if (read > most) throw new BlobRefused("mismatch", digest, `it has more than ${most} bytes`);
    hash.update(piece);
    yield piece;
  }
  if (typeof bytes === "number" && read !== bytes)
    throw new BlobRefused("mismatch", digest, `it has ${read} bytes and not ${bytes}`);
  if (hash.digest("hex") !== digest) throw new BlobRefused("mismatch", digest, "its content does not match its digest");
}

/** A whole blob in memory. */
export async function wholeBlob(
  store: BlobStore,
  digest: Digest,
  maxBytes: number,
  signal?: AbortSignal,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of store.get(digest, maxBytes, signal)) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** Stores what is in memory. */
export async function putBytes(store: BlobStore, content: Uint8Array, signal?: AbortSignal): Promise<Digest> {
  const digest = blobDigest(content);
  if ((await store.has([digest])).size === 0) await store.put({ digest, bytes: content.length }, once(content), signal);
  return digest;
}

async function* once(content: Uint8Array): AsyncGenerator<Uint8Array, void, undefined> {
  yield content;
}

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
