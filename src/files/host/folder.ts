import fs from "node:fs";
import { posix } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import { joinVirtual } from "../../sandbox/virtual-path.ts";
import type { Place } from "../model/files.ts";
import { type FileOperation, IS_MOUNT, unfit } from "../model/refusals.ts";
import { type Descriptor, isRoot, pinned, type Root } from "./descriptor.ts";
import { throughLink, walk } from "./walk.ts";

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

/** The folder of a place's last component, and that component. */
export interface Slot extends Disposable {
  readonly folder: Descriptor;
  readonly name: string;
}

/** Opens the folder of a place to change its entries, through no link. The mount itself has no folder. */
export function openSlot(operation: FileOperation, root: Root, place: Place, create = false): Slot {
  const name = place.parts.at(-1);
  if (name === undefined) throw unfit(operation, place.path, IS_MOUNT);
  const { folder } = openFolder(operation, root, place, place.parts.slice(0, -1), create);
  return { folder, name, [Symbol.dispose]: () => folder[Symbol.dispose]() };
}

/** Opens `parts` below the root, each a real folder. With `create`, missing folders are made. */
function openFolder(
  operation: FileOperation,
  root: Root,
  place: Place,
  parts: readonly string[],
  create: boolean,
): { readonly folder: Descriptor; readonly created: boolean } {
  if (!create) {
    const found = walk({ operation, root, parts, links: "refuse", asked: place.path });
    if (found.type === "directory") return { folder: found.descriptor, created: false };
    found[Symbol.dispose]();
    if (found.type === "link") throw throughLink(operation, place.path, found.path);
    throw unfit(operation, place.path, `'${found.path}' is not a directory.`);
  }
  let current = root.descriptor.again();
  let created = false;
  try {
    for (const [index, part] of parts.entries()) {
      const made = makeFolder(current, part);
      created ||= made;
      let next: Descriptor;
      try {
        next = current.child(part, true);
      } catch (error) {
        if (!hasCode(error, "ENOTDIR")) throw error;
        throw throughNoFolder(operation, place, root, parts.slice(0, index + 1));
      }
      current[Symbol.dispose]();
      current = next;
    }
    return { folder: current, created };
  } catch (error) {
    current[Symbol.dispose]();
    throw error;
  }
}

export function makePlace(root: Root, place: Place): { readonly created: boolean } {
  const { folder, created } = openFolder("mkdir", root, place, place.parts, true);
  folder[Symbol.dispose]();
  return { created };
}

/** The owner for new files and folders in a directory: the directory's own if Corral is root; null keeps the process's. */
export function ownerIn(folder: Descriptor): { readonly uid: number; readonly gid: number } | null {
  if (!isRoot()) return null;
  const { uid, gid } = folder.stat();
  return { uid, gid };
}

/** True if it was missing. */
function makeFolder(parent: Descriptor, name: string): boolean {
  const there = fs.lstatSync(parent.path(name), { throwIfNoEntry: false });
  if (there !== undefined) {
    // A process that was killed may have made it without changing its owner. The owner could replace an empty one anyway.
    if (there.isDirectory() && there.uid === 0) giveToOwner(parent, name);
    return false;
  }
  try {
    fs.mkdirSync(parent.path(name));
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  }
  giveToOwner(parent, name);
  return true;
}

/**
 * Gives a folder away only if it is still root's, empty and on the same file system, and through a descriptor: another process
 * may have put another folder or a link in its place.
 */
function giveToOwner(parent: Descriptor, name: string): void {
  const owner = ownerIn(parent);
  if (owner === null) return;
  try {
    using named = parent.child(name, true);
    using folder = named.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    const { uid, nlink, dev } = folder.stat();
    if (dev !== parent.stat().dev) return;
    if (uid === 0 && nlink <= 2 && fs.readdirSync(folder.path()).length === 0)
      fs.fchownSync(folder.fd, owner.uid, owner.gid);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
  }
}

function throughNoFolder(operation: FileOperation, place: Place, root: Root, parts: readonly string[]): Error {
  const path = joinVirtual(root.path, parts.join("/"));
  using found = walk({ operation, root, parts, links: "refuse", asked: place.path });
  if (found.type === "link") return throughLink(operation, place.path, path);
  return unfit(operation, place.path, `'${path}' is not a directory.`);
}
