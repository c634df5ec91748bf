import { editedContent } from "../../../src/files/edit/edited-content.ts";
import type {
  Deleted,
  DeleteOptions,
  FileInfo,
  Files,
  Guard,
  Looked,
  WriteOptions,
  Written,
} from "../../../src/files/model/files.ts";
import { holdsMount, type Place } from "../../../src/files/model/place.ts";
import { HOLDS_MOUNT, NOT_EMPTY, TAKEN, unfit, withRefusals } from "../../../src/files/model/refusals.ts";
import type { ByteSource } from "../../../src/files/read/byte-source.ts";
import { readContent } from "../../../src/files/read/read-content.ts";
import { sha256 } from "../../../src/platform/sha256.ts";
import { NotFoundError } from "../../../src/sandbox/errors.ts";
import { joinVirtual, type VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { listFolder } from "./list.ts";
import { type FolderNode, find, findFile, folderAt, type Node, newFile, newFolder, slotOf } from "./node.ts";
import { transfer } from "./transfer.ts";

/**
 * Files in the memory of this process. There are no links and no special files. The same contract tests run against this and
 * the host's files, so that each checks the other.
 */
export function openMemoryFiles(mounts: readonly { readonly path: VirtualPath }[]): Files {
  const roots = new Map(mounts.map(({ path }) => [path, newFolder()]));
  const mountPaths = [...roots.keys()];
  const rootOf = (place: Place): FolderNode => {
    const root = roots.get(place.mount);
    if (root === undefined) throw new RangeError(`there is no mount at ${place.mount}`);
    return root;
  };
  const ends = (from: Place, to: Place) => ({
    from: { root: rootOf(from), place: from },
    to: { root: rootOf(to), place: to },
    mounts: mountPaths,
  });
  return {
    read: (place, options = {}) =>
      withRefusals("read", place.path, () => {
        const { bytes } = findFile("read", rootOf(place), place);
        options.checks?.read?.(place.path, bytes.length);
        return readContent(sourceOf(bytes), place.path, options);
      }),
    write: (place, content, options = {}) =>
      withRefusals("write", place.path, () => write(rootOf(place), place, content, options)),
    append: (place, content, options = {}) =>
      withRefusals("append", place.path, () => append(rootOf(place), place, content, options)),
    edit: (place, edits, options = {}) =>
      withRefusals("edit", place.path, async () => {
        const root = rootOf(place);
        const before = findFile("edit", root, place).bytes;
        options.checks?.read?.(place.path, before.length);
        const edited = await editedContent(sourceOf(before), place.path, edits);
        const { bytes } = edited;
        write(root, place, bytes, options);
        return { bytes: bytes.length, before: edited.before, digest: sha256(bytes), replacements: edited.replacements };
      }),
    delete: (place, options = {}) =>
      withRefusals("delete", place.path, () => remove(rootOf(place), place, mountPaths, options)),
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

function write(root: FolderNode, place: Place, content: string | Uint8Array, options: WriteOptions): Written {
  const bytes = Buffer.from(content);
  options.checks?.write?.(place.path, bytes.length);
  const { folder, name, there } = slotOf("write", root, place, true);
  if (there?.type === "directory") findFile("write", root, place);
  if (there !== undefined && options.overwrite === false) throw unfit("write", place.path, TAKEN);
  folder.children.set(name, newFile(bytes));
  return { bytes: bytes.length, created: there === undefined };
}

function append(root: FolderNode, place: Place, content: string | Uint8Array, options: Guard): Written {
  const { there } = slotOf("append", root, place, true);
  const before = there === undefined ? Buffer.alloc(0) : findFile("append", root, place).bytes;
  return write(root, place, Buffer.concat([before, Buffer.from(content)]), options);
}

function remove(
  root: FolderNode,
  place: Place,
  mounts: readonly VirtualPath[],
  { recursive = false, checks }: DeleteOptions,
): Deleted {
  const { folder, name, there } = slotOf("delete", root, place);
  if (there === undefined) throw new NotFoundError(place.path);
  if (there.type === "directory") {
    if (holdsMount(mounts, place.path)) {
      throw unfit("delete", place.path, HOLDS_MOUNT);
    }
    if (there.children.size > 0 && !recursive) throw unfit("delete", place.path, NOT_EMPTY);
  }
  const removed = { files: 0, folders: 0 };
  count(there, place.path, removed, (path) => checks?.write?.(path, 0));
  folder.children.delete(name);
  return removed;
}

function count(
  node: Node,
  path: VirtualPath,
  removed: { files: number; folders: number },
  check: (path: VirtualPath) => void,
): void {
  if (node.type === "file") {
    check(path);
    removed.files++;
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
