import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Descriptor, pinned } from "../files/host/descriptor.ts";
import { codeOf } from "../platform/errno.ts";
import { type Blob, BlobRefused, type BlobStore, checked } from "./blob.ts";
import { blobOf, fillFile, piecesOf } from "./file-content.ts";

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
export async function copiedFrom(host: string, blob: Blob, into: Descriptor, signal: AbortSignal): Promise<boolean> {
  try {
    using found = host === "" ? null : pinned(host);
    if (found === null || !found.stat().isFile() || found.stat().size !== blob.bytes) return false;
    using file = found.reopen(fs.constants.O_RDONLY);
    await fillFile(into, checked(blob, piecesOf(file, signal)));
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
