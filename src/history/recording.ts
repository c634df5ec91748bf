import { createHash } from "node:crypto";
import { closeSync, constants, mkdirSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { hasCode } from "../platform/errno.ts";
import { openRegular } from "../platform/write-file.ts";
import type { HistoryEntry } from "./entry.ts";
import { type StreamName, StreamWriter } from "./kept-stream.ts";
import { removeRunFolder } from "./run-folders.ts";

/** The lines of a record, in its folder. */
export const RECORD_FILE = "record.ndjson";
/** Of calls, more than this is counted and left out, so that the end still fits. */
export const MAX_RECORD_BYTES = 2 * 1024 * 1024;
/** Of all attachments of a run, so many bytes are read for their digests. */
const MAX_DIGESTED_BYTES = 16 * 1024 * 1024;
const READ_BYTES = 1024 * 1024;

const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND | constants.O_NOFOLLOW;

/**
 * Writes the record of one run. What is added is in the file when the call returns, except output, which is written in the
 * next turn of the event loop: thousands of small pieces are one write. Nothing waits for the disk to be flushed.
 *
 * It never throws: at the first error it reports why, and writes no more.
 */
export class Recording {
  readonly #dir: string;
  readonly #onTrouble: (why: string) => void;
  readonly #streams: Readonly<Record<StreamName, StreamWriter>>;
  #record: number | null = null;
  #recordBytes = 0;
  #leftOut = 0;
  #outputBytes = 0;
  #pending: { readonly stream: StreamName; readonly chunk: Buffer }[] = [];
  #flushing: NodeJS.Immediate | null = null;
  #digesting: Promise<void> | null = null;
  #isOver = false;

  /** `dir`: a folder that does not exist yet. */
  constructor(dir: string, onTrouble: (why: string) => void) {
    this.#dir = dir;
    this.#onTrouble = onTrouble;
    this.#streams = { stdout: new StreamWriter(dir, "stdout"), stderr: new StreamWriter(dir, "stderr") };
    this.#attempt(() => {
      madeFolder(dir);
      this.#record = openSync(join(dir, RECORD_FILE), NEW, 0o600);
    });
  }

  get leftOut(): number {
    return this.#leftOut;
  }

  /** Of both streams, whether or not all of it is kept. */
  get outputBytes(): number {
    return this.#outputBytes;
  }

  add(entry: HistoryEntry, { mayBeLeftOut = false } = {}): void {
    const line = Buffer.from(`${JSON.stringify(entry)}\n`);
    if (mayBeLeftOut && this.#recordBytes + line.length > MAX_RECORD_BYTES) {
      this.#leftOut += entry.type === "called" ? 1 : 0;
      return;
    }
    this.#attempt(() => {
      if (this.#record === null) return;
      this.#recordBytes += line.length;
      writeSync(this.#record, line);
    });
  }

  /** The chunk may not be changed afterwards. */
  output(stream: StreamName, chunk: Buffer): void {
    if (this.#isOver) return;
    this.#outputBytes += chunk.length;
    this.#pending.push({ stream, chunk });
    this.#flushing ??= setImmediate(() => this.#flush());
  }

  /** Adds the size and the digest of each file, while the run runs. A file that cannot be read has none. */
  digest(files: readonly { readonly name: string; readonly host: string }[]): void {
    if (this.#isOver || files.length === 0) return;
    this.#digesting = this.#digestAll(files).catch(() => {});
  }

  /** Writes what waits, and adds the last line. Resolves when everything is written. */
  async end(last: () => HistoryEntry): Promise<void> {
    this.#flush();
    this.add(last());
    await this.#digesting;
    this.#close();
  }

  /** Removes the record: there is nothing to keep. */
  async discard(): Promise<void> {
    this.#close();
    await removeRunFolder(this.#dir).catch(() => false);
  }

  #flush(): void {
    if (this.#flushing !== null) clearImmediate(this.#flushing);
    this.#flushing = null;
    const pending = this.#pending;
    this.#pending = [];
    this.#attempt(() => {
      for (const stream of ["stdout", "stderr"] as const) {
        const chunks = pending.filter((one) => one.stream === stream).map(({ chunk }) => chunk);
        const [first] = chunks;
        if (first !== undefined) this.#streams[stream].write(chunks.length === 1 ? first : Buffer.concat(chunks));
      }
    });
  }

  async #digestAll(files: readonly { readonly name: string; readonly host: string }[]): Promise<void> {
    let left = MAX_DIGESTED_BYTES;
    for (const { name, host } of files) {
      // The run judges the file; here only its facts are read: opening a FIFO or a device would block.
      await using file = await openRegular(host, constants.O_RDONLY).catch(() => null);
      if (file === null) continue;
      const bytes = (await file.stat()).size;
      const hash = bytes <= left ? createHash("sha256") : null;
      const piece = Buffer.alloc(hash === null ? 0 : Math.min(READ_BYTES, Math.max(1, bytes)));
      for (let at = 0; hash !== null && at < bytes; ) {
        const { bytesRead } = await file.read(piece, 0, piece.length, at);
        if (bytesRead === 0) break;
        hash.update(piece.subarray(0, bytesRead));
        at += bytesRead;
      }
      left -= hash === null ? 0 : bytes;
      this.add({ type: "attachment", name, bytes, sha256: hash?.digest("hex") ?? null });
    }
  }

  #attempt(write: () => void): void {
    if (this.#isOver) return;
    try {
      write();
    } catch (error) {
      this.#close();
      this.#onTrouble((error as Error).message);
    }
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#pending = [];
    for (const stream of Object.values(this.#streams)) stream[Symbol.dispose]();
    if (this.#record !== null) closeSync(this.#record);
    this.#record = null;
  }
}

/** Its parents are missing only for the first run of a project. */
function madeFolder(dir: string): void {
  try {
    mkdirSync(dir, { mode: 0o700 });
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
  }
}
