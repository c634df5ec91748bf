import fs from "node:fs";
import { hasCode } from "../../platform/errno.ts";
import { EditError, NotFoundError, SandboxError } from "../../sandbox/errors.ts";
import { joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { editedContent } from "../edit/edited-content.ts";
import { ListingDraft } from "../list/listing.ts";
import {
  contentBytes,
  type Edit,
  type Edited,
  type Expecting,
  type FileInfo,
  type Files,
  type Guard,
  type Listing,
  type ListOptions,
  type Place,
  type WriteOptions,
  type Written,
  whyNotRegular,
} from "../model/files.ts";
import { BELOW_FILE, CHANGED, type FileOperation, NOT_DIRECTORY, unfit, withRefusals } from "../model/refusals.ts";
import { appendAll, contentOf, copyContent, overwrite, writeAll } from "./content.ts";
import { copyPlace, deletePlace, type End, movePlace } from "./copy.ts";
import { type Descriptor, type HostMount, openRoots, type Root } from "./descriptor.ts";
import { makePlace, openSlot } from "./folder.ts";
import {
  entriesOf,
  entryPath,
  type FolderEntry,
  lookAtPlace,
  openFoundFile,
  readBytes,
  readFile,
  refuseChanged,
  versionOf,
} from "./look.ts";
import { keeping, lookUp, replaceFile } from "./new-files.ts";
import { type Found, refuseHidden, typeOf, walk } from "./walk.ts";

/**
 * The files of host directories, safe against other processes that change them at the same time. The directories stay open
 * until this is disposed of, so, as in a cell, a directory that is replaced later is not seen. `absoluteLinks`: absolute links that stay in
 * their mount are followed too. In a cell they lead elsewhere, so this is for sandboxes that no cell shows.
 */
export function openHostFiles(
  mounts: readonly HostMount[],
  { absoluteLinks = false }: { readonly absoluteLinks?: boolean } = {},
): Files {
  const roots = openRoots(mounts, absoluteLinks);
  const on = <T>(operation: FileOperation, place: Place, work: (root: Root) => T | Promise<T>): Promise<T> =>
    withRefusals(operation, place.path, () => work(roots.get(operation, place.mount)));
  const between = <T>(
    operation: "move" | "copy",
    ends: { readonly from: Place; readonly to: Place },
    work: (from: End, to: End) => Promise<T>,
  ): Promise<T> => {
    const end = (place: Place): End => ({ root: roots.get(operation, place.mount), place });
    return withRefusals(operation, ends.from.path, () => work(end(ends.from), end(ends.to)));
  };
  return {
    read: (place, options = {}) => on("read", place, (root) => readFile(root, place, options)),
    bytes: (place, options) => on("read", place, (root) => readBytes(root, place, options)),
    write: (place, content, options = {}) =>
      on("write", place, (root) => writeFile(root, place, contentBytes(content), options)),
    append: (place, content, options = {}) =>
      on("append", place, (root) => appendFile(root, place, contentBytes(content), options)),
    edit: (place, edits, options = {}) => on("edit", place, (root) => editFile(root, place, edits, options)),
    delete: (place, options = {}) => on("delete", place, (root) => deletePlace(root, place, options)),
    move: (from, to, options = {}) => between("move", { from, to }, (a, b) => movePlace(a, b, options)),
    copy: (from, to, options = {}) => between("copy", { from, to }, (a, b) => copyPlace(a, b, options)),
    mkdir: (place) => on("mkdir", place, (root) => makePlace(root, place)),
    exists: (place) => on("exists", place, (root) => placeExists(root, place)),
    stat: (place) => on("stat", place, (root) => statPlace(root, place)),
    list: (place, options = {}) => on("list", place, (root) => listPlace(root, place, options)),
    look: (place, options) => on(options.operation, place, (root) => lookAtPlace(root, place, options)),
    resolve: (place) => on("stat", place, (root) => resolvePlace(root, place)),
    [Symbol.dispose]: () => roots[Symbol.dispose](),
  };
}

/**
 * The real place of a path, after links, none of which may leave the mount. Components at its end need not exist. A link to
 * nothing is refused, since a program that writes to it would make its target.
 */
function resolvePlace(root: Root, place: Place): VirtualPath {
  const asked = place.path;
  for (let known = place.parts.length; ; known--) {
    using found = existing(root, place, known);
    if (found === null) continue;
    const [name, ...more] = place.parts.slice(known);
    if (name === undefined) return found.path;
    if (found.type !== "directory") throw unfit("stat", asked, BELOW_FILE);
    if (lookUp(found.descriptor, name) !== null) throw new NotFoundError(asked);
    const path = joinVirtual(found.path, [name, ...more].join("/"));
    refuseHidden("stat", root, path, asked);
    return path;
  }
}

/** What the first `known` components lead to; null if there is nothing. The mount itself always exists. */
function existing(root: Root, place: Place, known: number): Found | null {
  try {
    const parts = place.parts.slice(0, known);
    return walk({ operation: "exists", root, parts, links: "follow", asked: place.path });
  } catch (error) {
    if (error instanceof NotFoundError && known > 0) return null;
    throw error;
  }
}

async function editFile(root: Root, place: Place, edits: readonly Edit[], options: Guard & Expecting): Promise<Edited> {
  using found = walk({ operation: "edit", root, parts: place.parts, links: "refuse", asked: place.path });
  using file = openFoundFile("edit", place, found);
  const before = file.stat();
  options.checks?.read?.(found.path, before.size);
  const { to = versionOf(before) } = options.expected ?? {};
  if (to !== versionOf(before)) throw unfit("edit", place.path, CHANGED);
  const edited = await editedContent(contentOf(file), place.path, edits);
  const { bytes } = edited;
  options.checks?.write?.(found.path, bytes.length);
  if (!root.directory) await writeInPlace(root, place, bytes);
  else {
    using slot = openSlot("edit", root, place);
    const fill = async (fresh: Parameters<typeof writeAll>[0]): Promise<void> => {
      await writeAll(fresh, bytes, 0);
      // Otherwise a change by another writer since the read would be lost silently.
      const now = lookUp(slot.folder, slot.name)?.stats;
      if (now?.ino !== before.ino || now.mtimeMs !== before.mtimeMs || now.size !== before.size) {
        throw new EditError(place.path, "another process changed it at the same time. Read it again.");
      }
    };
    await replaceFile(slot.folder, slot.name, { ...keeping(before), overwrite: true, fill });
  }
  return { bytes: bytes.length, replacements: edited.replacements };
}

async function appendFile(root: Root, place: Place, bytes: Uint8Array, options: Guard & Expecting): Promise<Written> {
  if (!root.directory) return await appendTo(root, place, bytes, options);
  using slot = openSlot("append", root, place, true);
  refuseChanged("append", place.path, slot.folder, slot.name, options.expected?.to);
  const there = lookUp(slot.folder, slot.name);
  if (there === null) return await writeFile(root, place, bytes, { ...options, overwrite: false });
  if (there.type !== "file" || there.stats.nlink === 1) return await appendTo(root, place, bytes, options);

  // The file has other hard links, which must not change with it: it is replaced by a copy.
  using named = slot.folder.child(slot.name);
  using source = openFoundFile("append", place, { type: typeOf(named.stat()), descriptor: named });
  const size = source.stat().size + bytes.length;
  options.checks?.write?.(place.path, size);
  const fill = async (file: Descriptor): Promise<void> => {
    const copied = await copyContent(contentOf(source), file, options.signal);
    await writeAll(file, bytes, copied);
  };
  await replaceFile(slot.folder, slot.name, { ...keeping(there.stats), overwrite: true, fill });
  return { bytes: size, created: false };
}

async function appendTo(root: Root, place: Place, bytes: Uint8Array, options: Guard): Promise<Written> {
  using found = walk({ operation: "append", root, parts: place.parts, links: "refuse", asked: place.path });
  using file = openFoundFile("append", place, found, fs.constants.O_WRONLY | fs.constants.O_APPEND);
  options.checks?.write?.(place.path, file.stat().size + bytes.length);
  await appendAll(file, bytes);
  return { bytes: file.stat().size, created: false };
}

async function writeFile(root: Root, place: Place, bytes: Uint8Array, options: WriteOptions): Promise<Written> {
  options.checks?.write?.(place.path, bytes.length);
  if (!root.directory) return writeInPlace(root, place, bytes);
  using slot = openSlot("write", root, place, true);
  const there = lookUp(slot.folder, slot.name);
  const refusal = there === null ? null : whyNotRegular(there.type);
  if (refusal !== null) throw unfit("write", place.path, refusal);
  await replaceFile(slot.folder, slot.name, {
    ...keeping(there?.stats),
    overwrite: options.overwrite ?? true,
    fill: async (file) => {
      await writeAll(file, bytes, 0);
      refuseChanged("write", place.path, slot.folder, slot.name, options.expected?.to);
    },
  });
  return { bytes: bytes.length, created: there === null };
}

/** A mount that is a single file is written in place: a cell that has it mounted would keep the old file if it were replaced. */
async function writeInPlace(root: Root, place: Place, bytes: Uint8Array): Promise<Written> {
  using found = walk({ operation: "write", root, parts: place.parts, links: "refuse", asked: place.path });
  using file = openFoundFile("write", place, found, fs.constants.O_WRONLY);
  await overwrite(file, bytes);
  return { bytes: bytes.length, created: false };
}

function statPlace(root: Root, place: Place, operation: FileOperation = "stat"): FileInfo {
  using found = lookAt(operation, root, place);
  const { type, stats } = found;
  return { path: place.path, type, size: type === "file" ? stats.size : null, modifiedMs: stats.mtimeMs };
}

function placeExists(root: Root, place: Place): boolean {
  try {
    statPlace(root, place, "exists");
    return true;
  } catch (error) {
    if (error instanceof NotFoundError) return false;
    // A file has nothing below it.
    if (hasCode(error, "ENOTDIR")) return false;
    throw error;
  }
}

/** A link that cannot be followed is described itself. */
function lookAt(operation: FileOperation, root: Root, place: Place): Found {
  const asked = { operation, root, parts: place.parts, asked: place.path };
  try {
    return walk({ ...asked, links: "follow" });
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
    const link = linkItself(asked);
    if (link === null) throw error;
    return link;
  }
}

function linkItself(asked: Omit<Parameters<typeof walk>[0], "links">): Found | null {
  try {
    const found = walk({ ...asked, links: "refuse" });
    if (found.type === "link") return found;
    found[Symbol.dispose]();
    return null;
  } catch {
    // The caller reports the first error.
    return null;
  }
}

async function listPlace(root: Root, place: Place, options: ListOptions): Promise<Listing> {
  const draft = new ListingDraft(place.path, options);
  using found = walk({ operation: "list", root, parts: place.parts, links: "follow", asked: place.path });
  if (found.type !== "directory") throw unfit("list", place.path, NOT_DIRECTORY);
  await addFolder(root, found.descriptor, { shown: place.path, real: found.path }, draft, options.signal);
  return draft.finish();
}

/** `real` differs from `shown` below a link that was followed. Mounts hide entries by their real place. */
interface FolderPaths {
  readonly shown: VirtualPath;
  readonly real: VirtualPath;
}

async function addFolder(
  root: Root,
  folder: Descriptor,
  paths: FolderPaths,
  draft: ListingDraft,
  signal: AbortSignal | undefined,
): Promise<void> {
  for await (const entry of entriesOf(folder)) {
    signal?.throwIfAborted();
    const path = draft.pathOf(paths.shown, entry.name);
    if (draft.full) return;
    if (path === null) continue;
    const real = entryPath(paths.real, entry.name);
    if (root.hidden.includes(real)) continue;
    if (draft.wants(path)) draft.add({ path, type: entry.type, size: sizeOf(folder, entry) });
    if (entry.type === "directory") await addInner(root, folder, entry, { shown: path, real }, draft, signal);
    if (draft.full) return;
  }
}

async function addInner(
  root: Root,
  folder: Descriptor,
  entry: FolderEntry,
  paths: FolderPaths,
  draft: ListingDraft,
  signal: AbortSignal | undefined,
): Promise<void> {
  const depth = draft.depthOf(paths.shown);
  if (depth >= draft.pattern.depth) {
    if (draft.pattern.recursive) draft.cut();
    return;
  }
  try {
    using inner = folder.child(entry.name, true);
    await addFolder(root, inner, paths, draft, signal);
  } catch (error) {
    // A folder that disappeared or may not be read is listed without its entries.
    if (!(error instanceof Error && "syscall" in error)) throw error;
    draft.unread();
  }
}

function sizeOf(folder: Descriptor, entry: FolderEntry): number | null {
  if (entry.type !== "file") return null;
  try {
    using named = folder.child(entry.name);
    return named.stat().size;
  } catch {
    // It was deleted in the meantime.
    return null;
  }
}
