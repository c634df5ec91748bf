import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Descriptor, pinned } from "../files/host/descriptor.ts";
import { removeTree } from "../files/host/system-program.ts";
import { codeOf } from "../platform/errno.ts";
import {
  type Blob,
  BlobRefused,
  type BlobStore,
  blobOf,
  type Digest,
  fillFile,
  piecesOf,
  verifiedContent,
} from "./blob.ts";

/** A program may write to the file while it is read. */
const MAX_TRIES = 5;
const PAUSE_MS = 200;
/** Files whose digests are remembered while they do not change: many items may attach the same one. */
const MAX_KNOWN = 1000;

/** Stores single files, so that other machines can fetch them. */
export class StoredFiles {
  readonly #store: BlobStore;
  readonly #known = new Map<string, Blob>();

  constructor(store: BlobStore) {
    this.#store = store;
  }

  /** Stores a regular file that is held open as `held`. Null if it changes whenever it is read. */
  async store(held: string, signal: AbortSignal): Promise<Blob | null> {
    using file = new Descriptor(fs.openSync(held, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK));
    for (let tried = 1; tried <= MAX_TRIES; tried += 1) {
      if (tried > 1) await sleep(PAUSE_MS, undefined, { signal });
      const before = exactly(file);
      const known = this.#known.get(before);
      const blob = known ?? (await blobOf(file, signal));
      if (blob !== null && exactly(file) === before && (await this.#put(blob, file, signal))) {
        this.#remember(before, blob);
        return blob;
      }
    }
    return null;
  }

  /** False if the content of the file has changed since its digest was computed. */
  async #put(blob: Blob, file: Descriptor, signal: AbortSignal): Promise<boolean> {
    if ((await this.#store.has([blob.digest])).size > 0) return true;
    try {
      await this.#store.put(blob, piecesOf(file, signal), signal);
      return true;
    } catch (error) {
      if (error instanceof BlobRefused && error.code === "mismatch") return false;
      throw error;
    }
  }

  #remember(exact: string, blob: Blob): void {
    const [oldest] = this.#known.keys();
    if (this.#known.size >= MAX_KNOWN && oldest !== undefined) this.#known.delete(oldest);
    this.#known.set(exact, blob);
  }
}

/**
 * Fills an empty file with the content of a blob, if a regular file of this machine has it. False if it has not: then anything may be
 * in the file. No link is followed.
 */
async function copiedFrom(host: string, blob: Blob, into: Descriptor, signal: AbortSignal): Promise<boolean> {
  try {
    using found = host === "" ? null : pinned(host);
    if (found === null || !found.stat().isFile() || found.stat().size !== blob.bytes) return false;
    using file = found.reopen(fs.constants.O_RDONLY);
    await fillFile(into, verifiedContent(blob, piecesOf(file, signal)));
    return true;
  } catch (error) {
    if (!(error instanceof BlobRefused) && codeOf(error) === undefined) throw error;
    return false;
  }
}

/** Changes with every change of the file: programs cannot choose the time of change. */
function exactly({ fd }: Descriptor): string {
  const { dev, ino, size, mtimeNs, ctimeNs } = fs.fstatSync(fd, { bigint: true });
  return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}

/** Files that nothing uses now, and that are kept because the next item may use them: as many as one item may have. */
const MAX_IDLE = { files: 1000, bytes: 4 * 1024 ** 3 };

/** A file with the content of a blob, which every user can read. Disposing says that it is not used any more. */
export interface FetchedFile extends Disposable {
  readonly host: string;
}

interface Entry {
  readonly host: string;
  readonly bytes: number;
  users: number;
  /** Rejects if it cannot be fetched. */
  readonly made: Promise<void>;
}

/** Blobs as files in a directory of this process, each made once while it is used. Disposing removes them all. */
export class FetchedFiles implements AsyncDisposable {
  readonly #store: BlobStore;
  readonly #dir: string;
  readonly #maxIdle: typeof MAX_IDLE;
  readonly #ends = new AbortController();
  /** Those that nothing uses in the order of their last use. */
  readonly #entries = new Map<Digest, Entry>();
  #isMade: Promise<unknown> | null = null;
  #made = 0;

  /** `dir`: a path at which nothing is yet, in a directory of Corral's own. */
  constructor(store: BlobStore, dir: string, maxIdle = MAX_IDLE) {
    this.#store = store;
    this.#dir = dir;
    this.#maxIdle = maxIdle;
  }

  /**
   * Copied from `near` if that file has the content, else fetched. Rejects with `BlobRefused` if the store does not have exactly this
   * blob; nothing of it is left then.
   */
  async open(blob: Blob, signal: AbortSignal, near = ""): Promise<FetchedFile> {
    signal.throwIfAborted();
    const entry = this.#entries.get(blob.digest) ?? this.#begin(blob, near);
    entry.users += 1;
    let isOver = false;
    const close = (): void => {
      if (isOver) return;
      isOver = true;
      entry.users -= 1;
      if (entry.users === 0) this.#idle(blob.digest, entry);
    };
    try {
      await unlessAborted(entry.made, signal);
      // Only the size is another one: the content has the digest.
      if (entry.bytes !== blob.bytes)
        throw new BlobRefused("mismatch", blob.digest, `it has ${entry.bytes} bytes and not ${blob.bytes}`);
      return { host: entry.host, [Symbol.dispose]: close };
    } catch (error) {
      close();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ends.abort(new Error("what was fetched is not used any more"));
    await Promise.allSettled([...this.#entries.values()].map(({ made }) => made));
    await removeTree(this.#dir);
  }

  #begin(blob: Blob, near: string): Entry {
    this.#made += 1;
    const host = join(this.#dir, `${blob.digest}.${this.#made}`);
    const entry: Entry = { host, bytes: blob.bytes, users: 0, made: this.#make(host, blob, near) };
    this.#entries.set(blob.digest, entry);
    // The next one that asks tries again.
    entry.made.catch(() => this.#forget(blob.digest, entry));
    return entry;
  }

  async #make(host: string, blob: Blob, near: string): Promise<void> {
    this.#isMade ??= mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await this.#isMade.finally(() => (this.#isMade = null));
    try {
      using file = Descriptor.create(host, 0o600);
      // The digest is compared at the end, and the file has its name for nothing else before.
      if (!(await copiedFrom(near, blob, file, this.#ends.signal))) await this.#fetch(blob, file);
      fs.fchmodSync(file.fd, 0o444);
    } catch (error) {
      fs.rmSync(host, { force: true });
      throw error;
    }
  }

  async #fetch({ digest, bytes }: Blob, file: Descriptor): Promise<void> {
    fs.ftruncateSync(file.fd, 0);
    const written = await fillFile(file, this.#store.get(digest, bytes, this.#ends.signal));
    if (written !== bytes) throw new BlobRefused("mismatch", digest, `it has ${written} bytes and not ${bytes}`);
  }

  #idle(digest: Digest, entry: Entry): void {
    if (this.#entries.get(digest) !== entry) return;
    this.#entries.delete(digest);
    this.#entries.set(digest, entry);
    const idle = [...this.#entries].filter(([, { users }]) => users === 0);
    let bytes = idle.reduce((sum, [, one]) => sum + one.bytes, 0);
    for (const [index, [oldest, one]] of idle.entries()) {
      if (bytes <= this.#maxIdle.bytes && idle.length - index <= this.#maxIdle.files) return;
      bytes -= one.bytes;
      this.#forget(oldest, one);
      // One that is still being made is removed when it is there.
      void one.made.then(() => fs.rmSync(one.host, { force: true })).catch(() => {});
    }
  }

  #forget(digest: Digest, entry: Entry): void {
    if (this.#entries.get(digest) === entry) this.#entries.delete(digest);
  }
}

/** Stops waiting if the signal is aborted. The promise itself continues, for other callers. */
async function unlessAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
    aborted.catch(() => {});
  }
}
