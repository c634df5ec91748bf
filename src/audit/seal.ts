import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from "node:crypto";
import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import { openRegular } from "../platform/write-file.ts";
import type { TrailPaths } from "../state/state-paths.ts";

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
export interface Head {
  readonly seq: number;
  readonly hash: string;
  readonly size: number;
}

export function sealedHead(key: KeyObject, { seq, hash, size }: Head): string {
  const mac = createHmac("sha256", key).update(`head\n${seq}\n${hash}\n${size}`).digest("hex");
  return `${JSON.stringify({ seq, hash, size, mac })}\n`;
}

/** Null for anything but the exact text that {@link sealedHead} made with this key. */
export function unsealedHead(key: KeyObject, text: string): Head | null {
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
export interface PlacedRecord {
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
