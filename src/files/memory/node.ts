import { NotFoundError } from "../../sandbox/errors.ts";
import type { Place } from "../model/files.ts";
import { BELOW_FILE, type FileOperation, IS_DIRECTORY, IS_MOUNT, unfit } from "../model/refusals.ts";

/** A file's bytes are never changed in place, so a reader that holds them is not disturbed. */
export interface FileNode {
  readonly type: "file";
  readonly bytes: Buffer;
  readonly modifiedMs: number;
}

export interface FolderNode {
  readonly type: "directory";
  readonly children: Map<string, Node>;
  readonly modifiedMs: number;
}

export type Node = FileNode | FolderNode;

export function newFolder(): FolderNode {
  return { type: "directory", children: new Map(), modifiedMs: Date.now() };
}

export function newFile(bytes: Uint8Array): FileNode {
  return { type: "file", bytes: Buffer.from(bytes), modifiedMs: Date.now() };
}

export function find(operation: FileOperation, root: FolderNode, place: Place): Node {
  let node: Node = root;
  for (const part of place.parts) {
    if (node.type !== "directory") throw unfit(operation, place.path, BELOW_FILE);
    const next = node.children.get(part);
    if (next === undefined) throw new NotFoundError(place.path);
    node = next;
  }
  return node;
}

export function findFile(operation: FileOperation, root: FolderNode, place: Place): FileNode {
  const node = find(operation, root, place);
  if (node.type === "directory") throw unfit(operation, place.path, IS_DIRECTORY);
  return node;
}

export interface Slot {
  readonly folder: FolderNode;
  readonly name: string;
  readonly there: Node | undefined;
}

/** The folder and entry of a place's last component. With `create`, missing folders above it are made. */
export function slotOf(operation: FileOperation, root: FolderNode, place: Place, create = false): Slot {
  const name = place.parts.at(-1);
  if (name === undefined) throw unfit(operation, place.path, IS_MOUNT);
  const folder = folderAt(operation, root, place, place.parts.slice(0, -1), create).folder;
  return { folder, name, there: folder.children.get(name) };
}

export function folderAt(
  operation: FileOperation,
  root: FolderNode,
  place: Place,
  parts: readonly string[],
  create: boolean,
): { readonly folder: FolderNode; readonly created: boolean } {
  let folder = root;
  let created = false;
  for (const part of parts) {
    let next = folder.children.get(part);
    if (next === undefined) {
      if (!create) throw new NotFoundError(place.path);
      next = newFolder();
      folder.children.set(part, next);
      created = true;
    }
    if (next.type !== "directory") throw unfit(operation, place.path, BELOW_FILE);
    folder = next;
  }
  return { folder, created };
}
