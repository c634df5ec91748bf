import { createHash, type KeyObject } from "node:crypto";
import fs, { constants } from "node:fs";
import { type FileHandle, rename, rm } from "node:fs/promises";
import { promisify } from "node:util";
import { hasCode, nullFor } from "../platform/errno.ts";
import { openRegularNow } from "../platform/write-file.ts";
import { GENESIS, type Head, linesOf, type SealedRecord, sealedHead, unsealed, unsealedHead } from "./seal.ts";

/** `absent`: there is no such file. `broken`: its content was not sealed with this key. */
export type ReadHead = Head | "absent" | "broken";

/** Longer than any head. */
const MAX_HEAD_BYTES = 4096;

export function readTrailHead(path: string, key: KeyObject): ReadHead {
  try {
    using file = openRegularNow(path, constants.O_RDONLY);
    const bytes = Buffer.allocUnsafe(MAX_HEAD_BYTES);
    const read = fs.readSync(file.fd, bytes, 0, MAX_HEAD_BYTES, 0);
    return unsealedHead(key, bytes.toString("utf8", 0, read)) ?? "broken";
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "absent";
    throw error;
  }
}

/**
 * Replaces the head atomically, also across a power failure. The caller must hold the trail's lock. What changes the directory
 * is left to another thread: it can wait for a flush to the same disk.
 */
export async function writeHead(path: string, key: KeyObject, head: Head): Promise<void> {
  const draft = `${path}.new`;
  const fd = await openDraft(draft);
  try {
    fs.writeFileSync(fd, sealedHead(key, head));
    await flushed(fd);
  } finally {
    fs.closeSync(fd);
  }
  await rename(draft, path);
}

const flushed = promisify(fs.fdatasync);

const opened = promisify(fs.open);

async function openDraft(path: string): Promise<number> {
  const made = await opened(path, "wx", 0o600).catch(nullFor("EEXIST"));
  if (made !== null) return made;
  // Left by a crash.
  await rm(path, { force: true });
  return await opened(path, "wx", 0o600);
}

/**
 * The content of a `repaired` record: what was wrong at the end of the trail. Bytes that are not a record stay where they are,
 * since the trail is only ever appended to.
 */
interface Repair {
  readonly type: "repaired";
  /**
   * `torn`: an incomplete line, as after a crash. `foreign`: other bytes that are not records. `truncated`: the trail is
   * shorter than its head says. `head`: the head is missing, or not sealed with this key.
   */
  readonly what: "torn" | "foreign" | "truncated" | "head";
  /** The number of bytes before this record that are not records, their SHA-256, and their beginning. */
  readonly bytes: number;
  readonly sha256: string;
  readonly text: string;
}

/** The position after which the next record follows. */
export interface ChainEnd {
  readonly seq: number;
  readonly hash: string;
  /** Null if the trail is intact. */
  readonly repair: Repair | null;
  /** The trail does not end with a line break. */
  readonly openLine: boolean;
}

/** Null if the trail has to be read for it. */
export function intactEnd(size: number, head: ReadHead): ChainEnd | null {
  if (typeof head === "object" && head.size === size)
    return { seq: head.seq, hash: head.hash, repair: null, openLine: false };
  return head === "absent" && size === 0 ? { seq: 0, hash: GENESIS, repair: null, openLine: false } : null;
}

/** Finds the end of the chain. Reads only what was written after the head, which after a crash is one batch. */
export async function chainEnd(handle: FileHandle, size: number, head: ReadHead, key: KeyObject): Promise<ChainEnd> {
  const intact = intactEnd(size, head);
  if (intact !== null) return intact;
  const openLine = size > 0 && !(await endsWithLineBreak(handle, size));
  if (typeof head === "object" && head.size > size)
    return { seq: head.seq, hash: head.hash, repair: repairOf("truncated", NOTHING), openLine };

  const sealed = typeof head === "object" ? head : { seq: 0, hash: GENESIS, size: 0 };
  const { seq, hash, end } = await followed(handle, size, sealed, key);
  const left = await leftAt(handle, end, size);
  if (typeof head !== "object") return { seq, hash, repair: repairOf("head", left), openLine };
  if (left.bytes === 0) return { seq, hash, repair: null, openLine };
  const what = left.lineBreaks > 0 ? "foreign" : "torn";
  return { seq, hash, repair: repairOf(what, left), openLine };
}

/** Follows the chain from a known position, and skips lines that are not part of it. */
async function followed(
  handle: FileHandle,
  size: number,
  from: { seq: number; hash: string; size: number },
  key: KeyObject,
): Promise<{ seq: number; hash: string; end: number }> {
  let { seq, hash } = from;
  let end = from.size;
  for await (const lines of linesOf(handle, from.size, size)) {
    for (const line of lines) {
      const record = line.bytes === null ? null : unsealed(key, line.bytes);
      if (record === null || record.seq !== seq + 1 || record.prev !== hash) continue;
      seq = record.seq;
      hash = record.hash;
      end = line.end;
    }
  }
  return { seq, hash, end };
}

const SHOWN_BYTES = 1024;

interface Left {
  readonly bytes: number;
  readonly sha256: string;
  readonly begin: Buffer;
  readonly lineBreaks: number;
}

async function leftAt(handle: FileHandle, start: number, end: number): Promise<Left> {
  const digest = createHash("sha256");
  const chunk = Buffer.allocUnsafe(64 * 1024);
  let begin = Buffer.alloc(0);
  let lineBreaks = 0;
  let at = start;
  while (at < end) {
    const { bytesRead } = await handle.read(chunk, 0, Math.min(chunk.length, end - at), at);
    if (bytesRead === 0) break;
    const read = chunk.subarray(0, bytesRead);
    digest.update(read);
    if (at === start) begin = Buffer.from(read.subarray(0, SHOWN_BYTES));
    if (read.includes(0x0a)) lineBreaks += 1;
    at += bytesRead;
  }
  return { bytes: at - start, sha256: digest.digest("hex"), begin, lineBreaks };
}

const NOTHING = { bytes: 0, sha256: "", begin: Buffer.alloc(0) };

function repairOf(what: Repair["what"], { begin, bytes, sha256 }: Omit<Left, "lineBreaks">): Repair {
  return { type: "repaired", what, bytes, sha256: bytes === 0 ? "" : sha256, text: begin.toString("utf8") };
}

async function endsWithLineBreak(handle: FileHandle, size: number): Promise<boolean> {
  const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] === 0x0a;
}

/** True if exactly these bytes are what a `repaired` record describes. The record itself begins at `end`. */
export async function isRepaired(
  handle: FileHandle,
  { start, end }: { start: number; end: number },
  record: SealedRecord,
): Promise<boolean> {
  const { bytes, sha256 } = record;
  if (record.type !== "repaired" || typeof bytes !== "number" || bytes === 0) return false;
  // If the bytes did not end with a line break, the repair added one first.
  if (end - start !== bytes && end - start !== bytes + 1) return false;
  return (await leftAt(handle, start, start + bytes)).sha256 === sha256;
}
