import fs from "node:fs";
import { hasCode } from "../../platform/errno.ts";
import { joinVirtual } from "../../sandbox/virtual-path.ts";
import type { Place } from "../model/place.ts";
import { type FileOperation, IS_MOUNT, unfit } from "../model/refusals.ts";
import { type Descriptor, isRoot } from "./descriptor.ts";
import type { Root } from "./roots.ts";
import { throughLink, walk } from "./walk.ts";

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
