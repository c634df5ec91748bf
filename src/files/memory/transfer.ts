import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { TransferOptions, Transferred } from "../model/files.ts";
import { holdsMount, type Place } from "../model/place.ts";
import {
  type FileOperation,
  HOLDS_MOUNT,
  IS_DIRECTORY,
  intoItself,
  SAME_PLACE,
  TAKEN,
  unfit,
} from "../model/refusals.ts";
import { type FolderNode, find, type Node, newFile, newFolder, slotOf } from "./node.ts";

interface End {
  readonly root: FolderNode;
  readonly place: Place;
}

/** Counts content that comes, or goes if negative. Throws if there is no room. */
export type Grow = (operation: FileOperation, path: VirtualPath, bytes: number) => void;

export interface Ends {
  readonly from: End;
  readonly to: End;
  readonly mounts: readonly VirtualPath[];
  readonly grow: Grow;
}

/** Copies; a move then removes the original. If any file is refused, nothing is changed. */
export function transfer(
  operation: "move" | "copy",
  { from, to, mounts, grow }: Ends,
  options: TransferOptions,
): Transferred {
  const { path } = from.place;
  if (operation === "move") {
    if (path === to.place.path) throw unfit(operation, path, SAME_PLACE);
    slotOf(operation, from.root, from.place);
  }
  const node = find(operation, from.root, from.place);
  if (node.type === "directory") {
    if (covers(path, to.place.path)) {
      throw unfit(operation, path, intoItself(to.place.path));
    }
    if (holdsMount(mounts, path) && from.place.parts.length > 0) {
      throw unfit(operation, path, HOLDS_MOUNT);
    }
  }
  const done = { files: 0, bytes: 0 };
  const copied = copyOf(node, path, to.place.path, done, operation, options);
  const slot = slotOf(operation, to.root, to.place, true);
  if (slot.there !== undefined) refuseTaken(operation, slot.there, node, to.place, options.overwrite ?? false);
  const replaced = slot.there?.type === "file" ? slot.there.bytes.length : 0;
  grow(operation, path, (operation === "copy" ? done.bytes : 0) - replaced);
  slot.folder.children.set(slot.name, copied);
  if (operation === "move") {
    const source = slotOf(operation, from.root, from.place);
    source.folder.children.delete(source.name);
  }
  return done;
}

function refuseTaken(operation: "move" | "copy", there: Node, node: Node, to: Place, overwrite: boolean): void {
  if (there.type === "directory" && node.type === "file") {
    throw unfit(operation, to.path, IS_DIRECTORY);
  }
  if (overwrite && node.type === "file") return;
  throw unfit(operation, to.path, TAKEN);
}

function copyOf(
  node: Node,
  from: VirtualPath,
  to: VirtualPath,
  done: { files: number; bytes: number },
  operation: "move" | "copy",
  options: TransferOptions,
): Node {
  if (node.type === "file") {
    if (operation === "move") options.checks?.write?.(from, 0);
    options.checks?.read?.(from, node.bytes.length);
    options.checks?.write?.(to, node.bytes.length);
    done.files++;
    done.bytes += node.bytes.length;
    return newFile(node.bytes);
  }
  const folder = newFolder();
  for (const [name, child] of node.children) {
    const below = (path: VirtualPath): VirtualPath => `${path}/${name}` as VirtualPath;
    folder.children.set(name, copyOf(child, below(from), below(to), done, operation, options));
  }
  return folder;
}
