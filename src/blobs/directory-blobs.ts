import { randomUUID } from "node:crypto";
import fs from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { sync } from "../files/host/content.ts";
import { Descriptor, pinned } from "../files/host/descriptor.ts";
import { hasCode } from "../platform/errno.ts";
import {
  type Blob,
  BlobRefused,
  type BlobStore,
  type Content,
  type Digest,
  fillFile,
  isDigest,
  piecesOf,
  type Sweep,
  type Swept,
  verifiedContent,
} from "./blob.ts";

const MAX_BYTES = 4 * 1024 ** 3;
/** While a blob is written, and if that was interrupted. */
const UNFINISHED = ".new";
/** Between a look at its age and its removal. */
const SWEPT = ".swept";
/** The time of use is renewed only if it is this old. */
const RENEWED_AFTER_MS = 60_000;
/** More files of one of the 256 folders are left for the next sweep. */
const MAX_SWEPT = 1_000_000;
/** A blob that has no name is looked for so often, with such pauses. */
const MAX_LOOKS = 3;
const LOOK_MS = 30;

/** `path`: as a user writes it. Throws if it is no directory. */
export async function openDirectoryBlobs(path: string): Promise<DirectoryBlobs> {
  const real = await realpath(path).catch((cause: unknown) => {
    throw unusable(path, cause);
  });
  if (!(await stat(real)).isDirectory()) throw unusable(path);
  return new DirectoryBlobs(real);
}

function unusable(path: string, cause?: unknown): Error {
  return new Error(`the blob store ${path} is no directory that can be opened. Make it, or mount it, on this machine`, {
    cause,
  });
}

/**
 * Blobs as files of a directory that machines share: `ab/abcd…`. A process that can write there can change any file at any time, so each
 * is opened through no link, must be a regular file, and is compared with its digest while it is read. The directory's own
 * permission bits say who may read and write what is in it.
 */
export class DirectoryBlobs implements BlobStore {
  readonly #root: string;
  readonly maxBytes = MAX_BYTES;
  /** Of the 256 folders, those that have new names since the last flush: once for many blobs takes half of the time. */
  readonly #unflushed = new Set<string>();

  /** `root`: an absolute path without symbolic links. */
  constructor(root: string) {
    this.#root = root;
  }

  async has(digests: readonly Digest[]): Promise<ReadonlySet<Digest>> {
    const found = new Set<Digest>();
    using root = this.#open();
    for (const digest of digests) {
      using file = named(root, digest);
      if (file?.stat().isFile() && (isFresh(file) || (isRenewed(file) && isNamed(root, digest, file))))
        found.add(digest);
    }
    return found;
  }

  async put(blob: Blob, content: Content, signal?: AbortSignal): Promise<void> {
    const { digest, bytes } = blob;
    if (bytes > this.maxBytes) throw new BlobRefused("too_large", digest, tooLarge(bytes, this.maxBytes));
    using root = this.#open();
    using folder = folderFor(root, digest);
    const temporary = `${digest}.${randomUUID()}${UNFINISHED}`;
    using file = Descriptor.create(folder.path(temporary), 0o600);
    try {
      await fillFile(file, verifiedContent(blob, content, signal));
      fs.fchmodSync(file.fd, root.stat().mode & 0o444);
      await sync(file);
      // The content is known to be right: it also replaces a file of that name which is not.
      fs.renameSync(folder.path(temporary), folder.path(digest));
    } catch (error) {
      fs.rmSync(folder.path(temporary), { force: true });
      if (hasCode(error, "EISDIR", "ENOTEMPTY"))
        throw new BlobRefused("not_a_file", digest, "a directory has its name in the blob store", { cause: error });
      throw error;
    }
    this.#unflushed.add(digest.slice(0, 2));
  }

  async flush(): Promise<void> {
    using root = this.#open();
    for (const name of [...this.#unflushed]) {
      this.#unflushed.delete(name);
      using folder = root.child(name, true).reopenFolder();
      await sync(folder);
    }
  }

  async *get(digest: Digest, maxBytes: number, signal?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    using root = this.#open();
    using found = await namedSoon(root, digest);
    if (found === null) throw new BlobRefused("missing", digest, "the blob store does not have it");
    const stats = found.stat();
    if (!stats.isFile()) throw new BlobRefused("not_a_file", digest, "it is no regular file in the blob store");
    const most = Math.min(maxBytes, this.maxBytes);
    if (stats.size > most) throw new BlobRefused("too_large", digest, tooLarge(stats.size, most));
    using file = readable(found, digest);
    yield* verifiedContent({ digest, bytes: { atMost: most } }, piecesOf(file, signal), signal);
  }

  async sweep({ isKept, olderThanMs, signal }: Sweep): Promise<Swept> {
    const before = Date.now() - olderThanMs;
    let [removed, bytes] = [0, 0];
    using root = this.#open();
    for (const name of fs.readdirSync(root.path()).filter((one) => /^[0-9a-f]{2}$/.test(one))) {
      using folder = root.childFolder(name);
      if (folder === null) continue;
      for (const file of fs.readdirSync(folder.path()).slice(0, MAX_SWEPT)) {
        signal?.throwIfAborted();
        if (isDigest(file) && isKept(file)) continue;
        const freed = removedFile(folder, file, before);
        if (freed === null) continue;
        removed += 1;
        bytes += freed;
      }
    }
    return { removed, bytes };
  }

  #open(): Descriptor {
    const root = pinned(this.#root);
    if (root?.stat().isDirectory()) return root;
    root?.[Symbol.dispose]();
    throw unusable(this.#root);
  }
}

function tooLarge(bytes: number, most: number): string {
  return `it has ${bytes} bytes, and at most ${most} are allowed`;
}

/** Null if there is none. It only names the entry: a FIFO is not opened. */
function named(root: Descriptor, digest: Digest): Descriptor | null {
  try {
    using folder = root.child(digest.slice(0, 2), true);
    return folder.child(digest);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP")) return null;
    throw error;
  }
}

/** A sweep that sees that a blob was used meanwhile takes its name away for a moment. */
async function namedSoon(root: Descriptor, digest: Digest): Promise<Descriptor | null> {
  for (let look = 1; look < MAX_LOOKS; look += 1) {
    const found = named(root, digest);
    if (found !== null) return found;
    await sleep(LOOK_MS);
  }
  return named(root, digest);
}

function readable(found: Descriptor, digest: Digest): Descriptor {
  try {
    return found.reopen(fs.constants.O_RDONLY);
  } catch (error) {
    if (!hasCode(error, "EAGAIN", "EACCES")) throw error;
    const why = hasCode(error, "EAGAIN") ? "another program holds it with a lease" : "this user may not read it";
    throw new BlobRefused("not_a_file", digest, why, { cause: error });
  }
}

function isFresh(file: Descriptor): boolean {
  return file.stat().mtimeMs > Date.now() - RENEWED_AFTER_MS;
}

/** False if a sweep took it before it was renewed. One that comes later sees the new time. */
function isNamed(root: Descriptor, digest: Digest, file: Descriptor): boolean {
  using again = named(root, digest);
  const [is, was] = [again?.stat(), file.stat()];
  return is !== undefined && is.ino === was.ino && is.dev === was.dev;
}

/** False if this user may not renew it: it is stored again then, under the same name. */
function isRenewed(file: Descriptor): boolean {
  try {
    const now = Date.now() / 1000;
    fs.utimesSync(file.path(), now, now);
    return true;
  } catch (error) {
    if (hasCode(error, "EPERM", "EACCES", "EROFS")) return false;
    throw error;
  }
}

function folderFor(root: Descriptor, digest: Digest): Descriptor {
  const name = digest.slice(0, 2);
  try {
    fs.mkdirSync(root.path(name), 0o700);
    using made = root.child(name, true).reopenFolder();
    // As the directory itself, whatever the umask: other users of it shall find what is stored.
    fs.fchmodSync(made.fd, root.stat().mode & 0o7777);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
  return root.child(name, true);
}

/**
 * Its size, or null if it stays. It is checked again under another name: a machine that has just asked for it has renewed it,
 * and then it gets its name back.
 */
function removedFile(folder: Descriptor, name: string, before: number): number | null {
  const stats = fs.lstatSync(folder.path(name), { throwIfNoEntry: false });
  if (stats === undefined || stats.isDirectory() || stats.mtimeMs > before) return null;
  const away = `${name.slice(0, 64)}.${randomUUID()}${SWEPT}`;
  try {
    fs.renameSync(folder.path(name), folder.path(away));
    if (isDigest(name) && fs.lstatSync(folder.path(away)).mtimeMs > before) {
      nameAgain(folder, away, name);
      return null;
    }
    fs.unlinkSync(folder.path(away));
    return stats.size;
  } catch (error) {
    // Another sweep was faster.
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  }
}

/** Without replacing what was stored under that name meanwhile. */
function nameAgain(folder: Descriptor, away: string, name: string): void {
  try {
    fs.linkSync(folder.path(away), folder.path(name));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
  fs.unlinkSync(folder.path(away));
}
