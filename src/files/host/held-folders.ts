import fs from "node:fs";
import { posix } from "node:path";
import type { Descriptor } from "./descriptor.ts";
import { pinned } from "./roots.ts";

/** Of folders; each is one descriptor. */
const MAX_HELD = 32;

interface Held {
  readonly descriptor: Descriptor;
  readonly dev: bigint;
  readonly ino: bigint;
}

/**
 * Folders that are held open between two uses, for work that opens many files of few folders. A folder was opened
 * component by component through no link, as {@link pinned} does it, and is used again only while its path still leads to
 * this very folder. Its number cannot pass to another one meanwhile, because it is held.
 */
export class HeldFolders implements Disposable {
  readonly #held = new Map<string, Held>();

  /** The same as {@link pinned}. The caller closes it. */
  pinned(host: string): Descriptor | null {
    const folder = this.folder(posix.dirname(host));
    const name = posix.basename(host);
    if (folder === null || name === "" || name === "." || name === "..") return pinned(host);
    try {
      const found = folder.child(name);
      const stats = found.stat();
      if (stats.isDirectory() || stats.isFile()) return found;
      found[Symbol.dispose]();
    } catch (error) {
      if (!(error instanceof Error && "syscall" in error)) throw error;
    }
    return null;
  }

  /** A folder, which stays open until this object is disposed of or has many others; null if it cannot be opened. */
  folder(host: string): Descriptor | null {
    const held = this.#held.get(host);
    if (held !== undefined) {
      const now = fs.lstatSync(host, { bigint: true, throwIfNoEntry: false });
      if (now?.dev === held.dev && now.ino === held.ino) return held.descriptor;
      this.#drop(host, held);
    }
    return this.#hold(host);
  }

  [Symbol.dispose](): void {
    for (const [host, held] of this.#held) this.#drop(host, held);
  }

  #hold(host: string): Descriptor | null {
    const descriptor = pinned(host);
    if (descriptor === null) return null;
    const stats = fs.fstatSync(descriptor.fd, { bigint: true });
    if (!stats.isDirectory()) {
      descriptor[Symbol.dispose]();
      return null;
    }
    const [oldest] = this.#held;
    if (oldest !== undefined && this.#held.size >= MAX_HELD) this.#drop(...oldest);
    this.#held.set(host, { descriptor, dev: stats.dev, ino: stats.ino });
    return descriptor;
  }

  #drop(host: string, { descriptor }: Held): void {
    this.#held.delete(host);
    descriptor[Symbol.dispose]();
  }
}
