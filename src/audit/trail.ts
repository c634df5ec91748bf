import type { KeyObject } from "node:crypto";
import fs, { constants } from "node:fs";
import { mkdir, open, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { fullText, hasCode, isDiskFull } from "../platform/errno.ts";
import { openRegular, openRegularNow } from "../platform/write-file.ts";
import { FileLock, type LockOwner } from "../state/file-lock.ts";
import type { TrailPaths } from "../state/state-dir.ts";
import type { AuditRecord } from "./records.ts";
import {
  type ChainEnd,
  chainEnd,
  GENESIS,
  intactEnd,
  type ReadHead,
  readTrailHead,
  sealedLine,
  writeHead,
} from "./seal.ts";

/** The limits on the parts of a record. */
interface Bounds {
  /** Characters of a text. */
  readonly text: number;
  /** Items of a list. */
  readonly list: number;
}

/** Tried in order, until the record is short enough. */
const BOUNDS: readonly Bounds[] = [
  { text: 4096, list: 1000 },
  { text: 512, list: 200 },
  { text: 128, list: 20 },
];
const MAX_RECORD_BYTES = 256 * 1024;
const MAX_NAMES = 100;
const MAX_DEPTH = 6;

/** A record as JSON of limited length. Cuts are marked with the amount that is missing. */
export function boundedJson(record: object): string {
  for (const bounds of BOUNDS) {
    const json = JSON.stringify(cut(record, bounds, 0));
    if (Buffer.byteLength(json) <= MAX_RECORD_BYTES) return json;
  }
  // Corral makes no such record: it has many long names, deeply nested.
  const { type } = record as { type?: unknown };
  return JSON.stringify({ type: cut(String(type), { text: 128, list: 0 }, 0), cut: "it was too large to record" });
}

function cut(value: unknown, bounds: Bounds, depth: number): unknown {
  if (typeof value === "string") return cutText(value, bounds.text);
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth >= MAX_DEPTH) return "…";
  if (Array.isArray(value)) {
    const kept = value.slice(0, bounds.list).map((item) => cut(item, bounds, depth + 1));
    return value.length > bounds.list ? [...kept, { more: value.length - bounds.list }] : kept;
  }
  const entries = Object.entries(value).filter(([, part]) => part !== undefined);
  const kept = entries.slice(0, MAX_NAMES).map(([name, part]) => [cutText(name, 128), cut(part, bounds, depth + 1)]);
  if (entries.length > MAX_NAMES) kept.push(["more", entries.length - MAX_NAMES]);
  return Object.fromEntries(kept);
}

function cutText(text: string, max: number): string {
  if (text.length <= max) return text.toWellFormed();
  return `${text.slice(0, max).toWellFormed()}… (${text.length - max} more characters)`;
}

/** A project's record of what was requested, approved and done. */
export interface AuditTrail {
  /**
   * Settles when the record is on disk. What must not happen unrecorded waits for it.
   *
   * @throws AuditTrailError if it could not be written. The caller decides what may continue without it.
   */
  append(record: AuditRecord): Promise<void>;
}

/** For operations that only read, and need no record. */
export const noTrail: AuditTrail = { append: async () => {} };

/** A record could not be written. The message is for people: it may hold host paths. */
export class AuditTrailError extends Error {
  override readonly name = "AuditTrailError";
}

export interface TrailOptions {
  readonly place: TrailPaths;
  /** See `auditKey`. */
  readonly key: KeyObject;
  readonly owner: LockOwner;
  /** The wall clock; replaced only in tests. */
  readonly clock?: () => Date;
}

const MAX_BATCH_RECORDS = 1000;
const MAX_BATCH_CHARACTERS = 1024 * 1024;
const MAX_QUEUED_RECORDS = 10_000;
const MAX_QUEUED_CHARACTERS = 16 * 1024 * 1024;

interface Queued {
  readonly at: string;
  readonly data: string;
  readonly written: () => void;
  readonly failed: (error: AuditTrailError) => void;
}

/**
 * The trail on disk. Several processes can append to it at once. Records are written in batches: one lock, one append and one
 * flush for all that arrived together. No file is created before the first record.
 */
export class TrailFile implements AuditTrail, AsyncDisposable {
  readonly #options: TrailOptions;
  readonly #lock: FileLock;
  #queue: Queued[] = [];
  #queuedCharacters = 0;
  #writing: Promise<void> | null = null;
  #isMade = false;
  #isClosed = false;

  constructor(options: TrailOptions) {
    this.#options = options;
    this.#lock = new FileLock(options.place.lock, options.owner);
  }

  append(record: AuditRecord): Promise<void> {
    const { clock = () => new Date() } = this.#options;
    const at = clock().toISOString();
    const data = boundedJson(record);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    if (this.#isClosed) reject(new AuditTrailError("the audit trail is closed"));
    else if (this.#isFull(data))
      reject(new AuditTrailError("too many records are waiting to be written to the audit trail"));
    else {
      this.#queue.push({ at, data, written: resolve, failed: reject });
      this.#queuedCharacters += data.length;
      this.#writing ??= this.#writeAll();
    }
    return promise;
  }

  /** Writes the waiting records, and settles their promises. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#writing;
    await this.#lock.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #isFull(data: string): boolean {
    return this.#queue.length >= MAX_QUEUED_RECORDS || this.#queuedCharacters + data.length > MAX_QUEUED_CHARACTERS;
  }

  async #writeAll(): Promise<void> {
    // Records that are appended in the same tick go into the same batch.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const batch = this.#takeBatch();
      try {
        await this.#write(batch);
        for (const { written } of batch) written();
      } catch (error) {
        await this.#lock.close().catch(() => {});
        this.#isMade = false;
        const { message } = error as Error;
        const why = isDiskFull(error) ? `${fullText(dirname(this.#options.place.trail))} (${message})` : message;
        const refusal = new AuditTrailError(`the audit trail cannot be written: ${why}`, { cause: error });
        for (const { failed } of batch) failed(refusal);
      }
    }
    this.#writing = null;
  }

  #takeBatch(): Queued[] {
    let characters = 0;
    let count = 0;
    for (const { data } of this.#queue) {
      if (count >= MAX_BATCH_RECORDS || (count > 0 && characters + data.length > MAX_BATCH_CHARACTERS)) break;
      characters += data.length;
      count += 1;
    }
    this.#queuedCharacters -= characters;
    return this.#queue.splice(0, count);
  }

  async #write(batch: readonly Queued[]): Promise<void> {
    const { place, key } = this.#options;
    if (!this.#isMade) await this.#make();
    await using _ = await this.#lock.take();
    const head = readTrailHead(place.head, key);
    using file = openRegularNow(place.trail, APPENDING, 0o600);
    const { fd, size } = file;
    // The head is written first, so that a trail without a head has lost it.
    if (head === "absent" && size === 0) {
      await writeHead(place.head, key, { seq: 0, hash: GENESIS, size: 0 });
      await flushDirectory(place.dir);
    }
    const end = await this.#chainEnd(size, head);
    const { text, seq, hash } = this.#linesAfter(end, batch);
    const bytes = Buffer.from(text);
    fs.writeFileSync(fd, bytes);
    await flushed(fd);
    await writeHead(place.head, key, { seq, hash, size: size + bytes.length });
  }

  /** Unless the last writer was killed, the trail ends where its head says. */
  async #chainEnd(size: number, head: ReadHead): Promise<ChainEnd> {
    const { place, key } = this.#options;
    const intact = intactEnd(size, head);
    if (intact !== null) return intact;
    await using handle = await openRegular(place.trail, constants.O_RDONLY);
    return await chainEnd(handle, size, head, key);
  }

  #linesAfter(end: ChainEnd, batch: readonly Queued[]): { text: string; seq: number; hash: string } {
    const { key } = this.#options;
    const at = batch[0]?.at ?? "";
    const repairs = end.repair === null ? [] : [{ at, data: boundedJson(end.repair) }];
    let { seq, hash } = end;
    const lines = [...repairs, ...batch].map(({ at, data }) => {
      seq += 1;
      const sealed = sealedLine(key, { seq, at, data, prev: hash });
      hash = sealed.hash;
      return sealed.line;
    });
    return { text: (end.openLine ? "\n" : "") + lines.join(""), seq, hash };
  }

  async #make(): Promise<void> {
    const { place } = this.#options;
    await mkdir(place.dir, { recursive: true, mode: 0o700 });
    await writeFile(place.project, `${place.of}\n`, { flag: "wx", mode: 0o600 }).catch(unlessThere);
    this.#isMade = true;
  }
}

const { O_RDWR, O_APPEND, O_CREAT } = constants;
const APPENDING = O_RDWR | O_APPEND | O_CREAT;

const flushed = promisify(fs.fdatasync);

async function flushDirectory(path: string): Promise<void> {
  await using handle = await open(path, "r");
  await handle.sync();
}

function unlessThere(error: unknown): void {
  if (!hasCode(error, "EEXIST")) throw error;
}
