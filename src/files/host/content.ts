import fs from "node:fs";
import { promisify } from "node:util";
import type { ByteSource } from "../read/read-text.ts";
import type { Descriptor } from "./descriptor.ts";

/** A regular file that is open for reading. Bytes appended later are not part of it. */
export function contentOf(file: Descriptor): ByteSource {
  const { size, mtimeMs } = file.stat();
  return {
    size,
    read: (position, length) => readAt(file, position, Math.min(length, size - position)),
    changed: () => {
      const now = file.stat();
      return now.size !== size || now.mtimeMs !== mtimeMs;
    },
  };
}

export async function writeAll(file: Descriptor, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    done += (await write(file.fd, bytes, done, bytes.length - done, position + done)).bytesWritten;
  }
}

/**
 * Writes all of `bytes` at the end of a file that is open for appending. If the disk is full, what was written is taken back,
 * unless another process has written since.
 */
export async function appendAll(file: Descriptor, bytes: Uint8Array): Promise<void> {
  const { size } = file.stat();
  let done = 0;
  try {
    while (done < bytes.length) {
      done += (await write(file.fd, bytes, done, bytes.length - done, null)).bytesWritten;
    }
  } catch (error) {
    // A size beyond 2^53 is not exact.
    const isOurs = done > 0 && Number.isSafeInteger(size) && file.stat().size === size + done;
    if (isOurs) fs.ftruncateSync(file.fd, size);
    throw error;
  }
}

/** Replaces the content of an open file. What makes it larger comes first: if the disk is full, the old content stays. */
export async function overwrite(file: Descriptor, bytes: Uint8Array): Promise<void> {
  const { size } = file.stat();
  try {
    await writeAll(file, bytes.subarray(size), size);
  } catch (error) {
    fs.ftruncateSync(file.fd, size);
    throw error;
  }
  await writeAll(file, bytes.subarray(0, size), 0);
  fs.ftruncateSync(file.fd, bytes.length);
}

/** Flushes the content to the disk, so that it survives a crash of the machine. */
export async function sync(file: Descriptor): Promise<void> {
  await promisify(fs.fsync)(file.fd);
}

const [read, write] = [promisify(fs.read), promisify(fs.write)];

async function readAt(file: Descriptor, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(Math.max(0, length));
  let done = 0;
  while (done < buffer.length) {
    const { bytesRead } = await read(file.fd, buffer, done, buffer.length - done, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return buffer.subarray(0, done);
}

/** How much is held in memory at a time, and the smallest hole that is preserved. */
const PIECE_BYTES = 256 * 1024;

/**
 * Copies what the source had when it was opened into an empty file, and returns the number of bytes. Runs of zeros become
 * holes, so that the copy of a sparse file takes no more space than the file.
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

/** Reading and writing this much takes less time than to have another thread do it. */
const MAX_AT_ONCE_BYTES = 64 * 1024;

/** Copies a regular file that is open for reading into an empty one, as {@link copyContent} does; a short one at once. */
export async function copyInto(file: Descriptor, to: Descriptor, signal: AbortSignal): Promise<void> {
  const source = contentOf(file);
  if (source.size > MAX_AT_ONCE_BYTES) return void (await copyContent(source, to, signal));
  const bytes = Buffer.allocUnsafe(source.size);
  let read = 0;
  for (let more = -1; more !== 0 && read < bytes.length; read += more)
    more = fs.readSync(file.fd, bytes, read, bytes.length - read, read);
  for (let done = 0; done < read; ) done += fs.writeSync(to.fd, bytes, done, read - done, done);
}
