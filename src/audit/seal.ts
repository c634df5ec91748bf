import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from "node:crypto";
import type { TrailPaths } from "../state/state-paths.ts";
import { linesBack, linesOf, openTrailToRead } from "./lines.ts";

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
