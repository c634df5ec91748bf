import { sha256 } from "../../platform/sha256.ts";
import { NotFoundError } from "../../sandbox/errors.ts";
import { covers, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { formatBytes } from "../../text/amounts.ts";
import { editedContent } from "../edit/edited-content.ts";
import { ListingDraft } from "../list/listing.ts";
import {
  type Deleted,
  type DeleteOptions,
  type FileInfo,
  type Files,
  type Guard,
  holdsMount,
  type Listing,
  type ListOptions,
  type Looked,
  MAX_MEMORY_BYTES,
  type Place,
  type TransferOptions,
  type Transferred,
  type WriteOptions,
  type Written,
} from "../model/files.ts";
import {
  BELOW_FILE,
  type FileOperation,
  HOLDS_MOUNT,
  IS_DIRECTORY,
  IS_MOUNT,
  intoItself,
  NOT_DIRECTORY,
  NOT_EMPTY,
  SAME_PLACE,
  TAKEN,
  tooLargeText,
  unfit,
  withRefusals,
} from "../model/refusals.ts";
import { type ByteSource, readContent } from "../read/read-text.ts";

/**
 * Files in the memory of this process, with content of at most `MAX_MEMORY_BYTES`. There are no links and no special files.
 * The same contract tests run against this and the host's files, so that each checks the other.
 */
export function openMemoryFiles(mounts: readonly { readonly path: VirtualPath }[]): Files {
  const roots = new Map(mounts.map(({ path }) => [path, newFolder()]));
  const mountPaths = [...roots.keys()];
  const held = { bytes: 0 };
  /** Counts content that comes, or goes if negative. */
  const grow: Grow = (operation, path, bytes) => {
    if (held.bytes + bytes > MAX_MEMORY_BYTES) throw unfit(operation, path, FULL);
    held.bytes += bytes;
  };
  const rootOf = (place: Place): FolderNode => {
    const root = roots.get(place.mount);
    if (root === undefined) throw new RangeError(`there is no mount at ${place.mount}`);
    return root;
  };
  const ends = (from: Place, to: Place) => ({
    from: { root: rootOf(from), place: from },
    to: { root: rootOf(to), place: to },
    mounts: mountPaths,
    grow,
  });
  return {
    read: (place, options = {}) =>
      withRefusals("read", place.path, () => {
        const { bytes } = findFile("read", rootOf(place), place);
        options.checks?.read?.(place.path, bytes.length);
        return readContent(sourceOf(bytes), place.path, options);
      }),
    bytes: (place, { maxBytes, checks }) =>
      withRefusals("read", place.path, () => {
        const { bytes } = findFile("read", rootOf(place), place);
        checks?.read?.(place.path, bytes.length);
        if (bytes.length > maxBytes) throw unfit("read", place.path, tooLargeText(bytes.length, maxBytes));
        return Buffer.from(bytes);
      }),
    write: (place, content, options = {}) =>
      withRefusals("write", place.path, () => write(rootOf(place), place, content, options, grow)),
    append: (place, content, options = {}) =>
      withRefusals("append", place.path, () => append(rootOf(place), place, content, options, grow)),
    edit: (place, edits, options = {}) =>
      withRefusals("edit", place.path, async () => {
        const root = rootOf(place);
        const before = findFile("edit", root, place).bytes;
        options.checks?.read?.(place.path, before.length);
        const edited = await editedContent(sourceOf(before), place.path, edits);
        const { bytes, replacements } = edited;
        write(root, place, bytes, options, grow);
        return { bytes: bytes.length, replacements };
      }),
    delete: (place, options = {}) =>
      withRefusals("delete", place.path, () => remove(rootOf(place), place, mountPaths, options, grow)),
    move: (from, to, options = {}) => withRefusals("move", from.path, () => transfer("move", ends(from, to), options)),
    copy: (from, to, options = {}) => withRefusals("copy", from.path, () => transfer("copy", ends(from, to), options)),
    mkdir: (place) =>
      withRefusals("mkdir", place.path, () => {
        const { created } = folderAt("mkdir", rootOf(place), place, place.parts, true);
        return { created };
      }),
    exists: (place) => withRefusals("exists", place.path, () => exists(rootOf(place), place)),
    stat: (place) => withRefusals("stat", place.path, () => infoOf(place, find("stat", rootOf(place), place))),
    list: (place, options = {}) =>
      withRefusals("list", place.path, () => listFolder(rootOf(place), place, mountPaths, options)),
    look: (place, options) =>
      withRefusals(options.operation, place.path, () =>
        lookedAt(find(options.operation, rootOf(place), place), place.path, options.inside),
      ),
    resolve: (place) => withRefusals("stat", place.path, () => resolved(rootOf(place), place)),
    [Symbol.dispose]: () => roots.clear(),
  };
}

function lookedAt(node: Node, path: VirtualPath, inside: boolean): Looked {
  const isFile = node.type === "file";
  const own = {
    path,
    type: node.type,
    size: isFile ? node.bytes.length : 0,
    mode: isFile ? 0o644 : 0o755,
    version: isFile ? sha256(node.bytes) : "",
  };
  if (isFile) return { ...own, content: inside ? node.bytes : null, entries: null };
  const entries = [...node.children].flatMap(([name, child]) => {
    const { entries: below, content: _, ...entry } = lookedAt(child, joinVirtual(path, name), true);
    return [entry, ...(below ?? [])];
  });
  return { ...own, content: null, entries: inside ? entries : null };
}

const FULL = `the files in memory would hold more than ${formatBytes(MAX_MEMORY_BYTES)}. Write less, or delete files.`;

function write(
  root: FolderNode,
  place: Place,
  content: string | Uint8Array,
  options: WriteOptions,
  grow: Grow,
): Written {
  const bytes = Buffer.from(content);
  options.checks?.write?.(place.path, bytes.length);
  const { folder, name, there } = slotOf("write", root, place, true);
  if (there?.type === "directory") findFile("write", root, place);
  if (there !== undefined && options.overwrite === false) throw unfit("write", place.path, TAKEN);
  grow("write", place.path, bytes.length - (there?.type === "file" ? there.bytes.length : 0));
  folder.children.set(name, newFile(bytes));
  return { bytes: bytes.length, created: there === undefined };
}

function append(root: FolderNode, place: Place, content: string | Uint8Array, options: Guard, grow: Grow): Written {
  const { there } = slotOf("append", root, place, true);
  const before = there === undefined ? Buffer.alloc(0) : findFile("append", root, place).bytes;
  return write(root, place, Buffer.concat([before, Buffer.from(content)]), options, grow);
}

function remove(
  root: FolderNode,
  place: Place,
  mounts: readonly VirtualPath[],
  { recursive = false, checks }: DeleteOptions,
  grow: Grow,
): Deleted {
  const { folder, name, there } = slotOf("delete", root, place);
  if (there === undefined) throw new NotFoundError(place.path);
  if (there.type === "directory") {
    if (holdsMount(mounts, place.path)) {
      throw unfit("delete", place.path, HOLDS_MOUNT);
    }
    if (there.children.size > 0 && !recursive) throw unfit("delete", place.path, NOT_EMPTY);
  }
  const removed = { files: 0, folders: 0, bytes: 0 };
  count(there, place.path, removed, (path) => checks?.write?.(path, 0));
  folder.children.delete(name);
  grow("delete", place.path, -removed.bytes);
  return { files: removed.files, folders: removed.folders };
}

function count(
  node: Node,
  path: VirtualPath,
  removed: { files: number; folders: number; bytes: number },
  check: (path: VirtualPath) => void,
): void {
  if (node.type === "file") {
    check(path);
    removed.files++;
    removed.bytes += node.bytes.length;
    return;
  }
  removed.folders++;
  for (const [name, child] of node.children) count(child, `${path}/${name}` as VirtualPath, removed, check);
}

function exists(root: FolderNode, place: Place): boolean {
  let node: Node | undefined = root;
  for (const part of place.parts) node = node?.type === "directory" ? node.children.get(part) : undefined;
  return node !== undefined;
}

/** There are no links: a path is its own place, unless it leads through a file. */
function resolved(root: FolderNode, place: Place): VirtualPath {
  let node: Node | undefined = root;
  for (const part of place.parts) {
    if (node === undefined) break;
    if (node.type !== "directory") throw unfit("stat", place.path, BELOW_FILE);
    node = node.children.get(part);
  }
  return place.path;
}

function infoOf(place: Place, node: Node): FileInfo {
  const size = node.type === "file" ? node.bytes.length : null;
  return { path: place.path, type: node.type, size, modifiedMs: node.modifiedMs };
}

function sourceOf(bytes: Buffer): ByteSource {
  return {
    size: bytes.length,
    read: async (position, length) => bytes.subarray(position, position + length),
    changed: () => false,
  };
}

function listFolder(root: FolderNode, place: Place, mounts: readonly VirtualPath[], options: ListOptions): Listing {
  const draft = new ListingDraft(place.path, options);
  const folder = find("list", root, place);
  if (folder.type !== "directory") throw unfit("list", place.path, NOT_DIRECTORY);
  add(folder, place.path, mounts, draft);
  return draft.finish();
}

function add(folder: FolderNode, path: VirtualPath, mounts: readonly VirtualPath[], draft: ListingDraft): void {
  for (const [name, node] of folder.children) {
    const here = draft.pathOf(path, name);
    if (draft.full) return;
    if (here === null || mounts.includes(here)) continue;
    const size = node.type === "file" ? node.bytes.length : null;
    if (draft.wants(here)) draft.add({ path: here, type: node.type, size });
    if (node.type !== "directory") continue;
    if (draft.depthOf(here) < draft.pattern.depth) add(node, here, mounts, draft);
    else if (draft.pattern.recursive) draft.cut();
  }
}

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
function transfer(operation: "move" | "copy", { from, to, mounts, grow }: Ends, options: TransferOptions): Transferred {
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

function newFolder(): FolderNode {
  return { type: "directory", children: new Map(), modifiedMs: Date.now() };
}

function newFile(bytes: Uint8Array): FileNode {
  return { type: "file", bytes: Buffer.from(bytes), modifiedMs: Date.now() };
}

function find(operation: FileOperation, root: FolderNode, place: Place): Node {
  let node: Node = root;
  for (const part of place.parts) {
    if (node.type !== "directory") throw unfit(operation, place.path, BELOW_FILE);
    const next = node.children.get(part);
    if (next === undefined) throw new NotFoundError(place.path);
    node = next;
  }
  return node;
}

function findFile(operation: FileOperation, root: FolderNode, place: Place): FileNode {
  const node = find(operation, root, place);
  if (node.type === "directory") throw unfit(operation, place.path, IS_DIRECTORY);
  return node;
}

export interface MemorySlot {
  readonly folder: FolderNode;
  readonly name: string;
  readonly there: Node | undefined;
}

/** The folder and entry of a place's last component. With `create`, missing folders above it are made. */
function slotOf(operation: FileOperation, root: FolderNode, place: Place, create = false): MemorySlot {
  const name = place.parts.at(-1);
  if (name === undefined) throw unfit(operation, place.path, IS_MOUNT);
  const folder = folderAt(operation, root, place, place.parts.slice(0, -1), create).folder;
  return { folder, name, there: folder.children.get(name) };
}

function folderAt(
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
