import { createHash, createHmac, createSecretKey, type KeyObject, timingSafeEqual } from "node:crypto";
import fs, { constants } from "node:fs";
import { type FileHandle, rename, rm } from "node:fs/promises";
import { promisify } from "node:util";
import { hasCode, nullFor } from "../platform/errno.ts";
import { openRegular, openRegularNow } from "../platform/write-file.ts";
import type { TrailPaths } from "../state/state-dir.ts";

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

/** The hash that the first record follows. */
export const GENESIS = "0".repeat(64);

/** A record of the trail with a valid seal. Its other fields depend on its type. */
export interface SealedRecord {
  readonly seq: number;
  readonly at: string;
  readonly type: string;
  readonly run?: string;
  readonly root?: string;
  readonly worker?: string;
  readonly prev: string;
  readonly hash: string;
  readonly [name: string]: unknown;
}

/**
 * Derives the key of one project's trail from the seal key of the state directory. It is a key object, because Node prepares
 * the bytes of a key anew for each HMAC, which takes longer than the HMAC.
 */
export function auditKey(sealKey: Buffer, projectDir: string): KeyObject {
  return createSecretKey(createHmac("sha256", sealKey).update(`audit trail\0${projectDir}`).digest());
}

/** One line of the trail, and its hash. `data` is the JSON of a non-empty object. */
export function sealedLine(
  key: KeyObject,
  { seq, at, data, prev }: { seq: number; at: string; data: string; prev: string },
): { readonly line: string; readonly hash: string } {
  const body = `{"seq":${seq},"at":"${at}",${data.slice(1, -1)},"prev":"${prev}"`;
  const hash = createHmac("sha256", key).update(`record\n${body}}`).digest("hex");
  return { line: `${body},"hash":"${hash}"}\n`, hash };
}

const SEAL = /^,"hash":"([0-9a-f]{64})"\}$/;
const SEAL_BYTES = ',"hash":""}'.length + 64;

/** The record of a line (without its line break). Null if this key did not seal exactly these bytes. */
export function unsealed(key: KeyObject, line: Buffer): SealedRecord | null {
  const end = line.length - SEAL_BYTES;
  const [, hash] = SEAL.exec(line.subarray(Math.max(0, end)).toString("latin1")) ?? [];
  if (hash === undefined) return null;
  const expected = createHmac("sha256", key).update("record\n").update(line.subarray(0, end)).update("}").digest();
  if (!timingSafeEqual(expected, Buffer.from(hash, "hex"))) return null;
  return JSON.parse(line.toString("utf8")) as SealedRecord;
}

/** The end of a trail: its last record, and its length in bytes. */
interface Head {
  readonly seq: number;
  readonly hash: string;
  readonly size: number;
}

export function sealedHead(key: KeyObject, { seq, hash, size }: Head): string {
  const mac = createHmac("sha256", key).update(`head\n${seq}\n${hash}\n${size}`).digest("hex");
  return `${JSON.stringify({ seq, hash, size, mac })}\n`;
}

/** Null for anything but the exact text that {@link sealedHead} made with this key. */
function unsealedHead(key: KeyObject, text: string): Head | null {
  const [, seq, hash, size] = /^\{"seq":(\d{1,15}),"hash":"([0-9a-f]{64})","size":(\d{1,15}),/.exec(text) ?? [];
  if (hash === undefined) return null;
  const head = { seq: Number(seq), hash, size: Number(size) };
  const expected = Buffer.from(sealedHead(key, head));
  const given = Buffer.from(text);
  return given.length === expected.length && timingSafeEqual(given, expected) ? head : null;
}

/**
 * The records of a trail, oldest first, in groups. Null is a line that is not a record. The order is not checked: `verifyTrail`
 * does that. Yields nothing if there is no trail.
 */
export async function* recordsOf(place: TrailPaths, key: KeyObject): AsyncGenerator<readonly (SealedRecord | null)[]> {
  await using handle = await openTrailToRead(place.trail);
  if (handle === null) return;
  const { size } = await handle.stat();
  for await (const lines of linesOf(handle, 0, size))
    yield lines.map(({ bytes }) => (bytes === null ? null : unsealed(key, bytes)));
}

/** One line of the trail that was read from its end. */
interface PlacedRecord {
  /** In bytes: what is older ends here or before. */
  readonly start: number;
  /** Null: it is not a record. */
  readonly record: SealedRecord | null;
}

/** The same from the end, the newest first. `before`: a position of the trail, which must be the end of a line; absent: all of it. */
export async function* recordsBack(
  place: TrailPaths,
  key: KeyObject,
  before?: number,
): AsyncGenerator<readonly PlacedRecord[]> {
  await using handle = await openTrailToRead(place.trail);
  if (handle === null) return;
  const { size } = await handle.stat();
  for await (const lines of linesBack(handle, Math.min(size, before ?? size)))
    yield lines.map(({ start, bytes }) => ({ start, record: bytes === null ? null : unsealed(key, bytes) }));
}

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
