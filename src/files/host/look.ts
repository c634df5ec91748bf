import fs, { type Dirent, promises } from "node:fs";
import { FileSystemError } from "../../sandbox/errors.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import {
  type Deleted,
  type EntryType,
  type Guard,
  type Looked,
  type LookOptions,
  MAX_EDIT_BYTES,
  MAX_TREE_DEPTH,
  MAX_TREE_ENTRIES,
  type Place,
  type ReadOptions,
  type ReadResult,
  type WholeOptions,
  whyNotRegular,
} from "../model/files.ts";
import { CHANGED, type FileOperation, tooLargeText, unfit } from "../model/refusals.ts";
import { readAll, readContent } from "../read/read-text.ts";
import { contentOf } from "./content.ts";
import type { Descriptor, Root } from "./descriptor.ts";
import { lookUp } from "./new-files.ts";
import { type Found, typeOf, walk } from "./walk.ts";

type Entry = NonNullable<Looked["entries"]>[number];

export async function lookAtPlace(root: Root, place: Place, options: LookOptions): Promise<Looked> {
  const { operation, links, inside, signal } = options;
  using found = walk({ operation, root, parts: place.parts, links, asked: place.path });
  const entry = entryOf(found.path, found.stats);
  if (inside && found.type === "directory") {
    const entries: Entry[] = [];
    await addEntries(found.descriptor, found.path, new TreeBudget(place.path, operation, signal), entries);
    return { ...entry, content: null, entries };
  }
  if (!inside || found.type !== "file" || found.stats.size > MAX_EDIT_BYTES)
    return { ...entry, content: null, entries: null };
  using file = openFoundFile(operation, place, found);
  const source = contentOf(file);
  const content = await readAll(source);
  if (source.changed() || versionOf(file.stat()) !== entry.version) throw unfit(operation, place.path, BEING_CHANGED);
  return { ...entry, content, entries: null };
}

const BEING_CHANGED = "another process changes it at the same time. Try again.";

/** Differs after every change: no process can set the time of a file's last change to one that it chooses. */
export function versionOf({ ino, size, mode, mtimeMs, ctimeMs }: fs.Stats): string {
  return [ino, size, mode, mtimeMs, ctimeMs].join(":");
}

/** Throws if another version than the expected one is at the name. */
export function refuseChanged(
  operation: FileOperation,
  path: string,
  folder: Descriptor,
  name: string,
  expected: string | null | undefined,
): void {
  if (expected === undefined) return;
  const there = lookUp(folder, name);
  if ((there === null ? null : versionOf(there.stats)) !== expected) throw unfit(operation, path, CHANGED);
}

function entryOf(path: Looked["path"], stats: fs.Stats): Entry {
  const type = typeOf(stats);
  const size = type === "file" ? stats.size : 0;
  return { path, type, size, mode: stats.mode & 0o777, version: versionOf(stats) };
}

async function addEntries(
  folder: Descriptor,
  path: Looked["path"],
  budget: TreeBudget,
  entries: Entry[],
  depth = 1,
): Promise<void> {
  for await (const { name } of entriesOf(folder)) {
    budget.take(depth);
    using named = folder.child(name);
    const entry = entryOf(entryPath(path, name), named.stat());
    entries.push(entry);
    if (entry.type === "directory") await addEntries(named, entry.path, budget, entries, depth + 1);
  }
}

export async function readFile(root: Root, place: Place, options: ReadOptions & Guard): Promise<ReadResult> {
  using found = walk({ operation: "read", root, parts: place.parts, links: "follow", asked: place.path });
  using file = openFoundFile("read", place, found);
  options.checks?.read?.(found.path, file.stat().size);
  return await readContent(contentOf(file), place.path, options);
}

export async function readBytes(root: Root, place: Place, options: WholeOptions): Promise<Buffer> {
  using found = walk({ operation: "read", root, parts: place.parts, links: "follow", asked: place.path });
  using file = openFoundFile("read", place, found);
  const source = contentOf(file);
  options.checks?.read?.(found.path, source.size);
  if (source.size > options.maxBytes) throw unfit("read", place.path, tooLargeText(source.size, options.maxBytes));
  return await readAll(source);
}

/** Opens what a walk found if it is a regular file: opening a FIFO would block, and a device has no end. */
export function openFoundFile(
  operation: FileOperation,
  place: Place,
  found: Pick<Found, "type" | "descriptor">,
  flags: number = fs.constants.O_RDONLY,
): Descriptor {
  const refusal = whyNotRegular(found.type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
  return found.descriptor.reopen(flags);
}

/** Checks and counts a whole tree before anything in it is changed. `check` throws to refuse a file. */
export async function surveyTree(
  folder: Descriptor,
  path: VirtualPath,
  budget: TreeBudget,
  check: (path: VirtualPath, size: number) => void,
  depth = 1,
): Promise<{ files: number; bytes: number }> {
  let files = 0;
  let bytes = 0;
  for await (const { name, type } of entriesOf(folder)) {
    budget.take(depth);
    const here = entryPath(path, name);
    using entry = folder.child(name, type === "directory");
    if (type === "directory") {
      const inner = await surveyTree(entry, here, budget, check, depth + 1);
      files += inner.files;
      bytes += inner.bytes;
      continue;
    }
    files++;
    const { size } = entry.stat();
    if (type !== "file") continue;
    bytes += size;
    check(here, size);
  }
  return { files, bytes };
}

/** Deletes the contents of a folder, but not the folder. Links are deleted, not followed. */
export async function emptyFolder(folder: Descriptor, budget: TreeBudget, depth = 1): Promise<Deleted> {
  let files = 0;
  let folders = 0;
  for await (const { name, type } of entriesOf(folder)) {
    budget.take(depth);
    if (type !== "directory") {
      fs.unlinkSync(folder.path(name));
      files++;
      continue;
    }
    {
      using inner = folder.child(name, true);
      const emptied = await emptyFolder(inner, budget, depth + 1);
      files += emptied.files;
      folders += emptied.folders + 1;
    }
    fs.rmdirSync(folder.path(name));
  }
  return { files, folders };
}

/** For checks and messages only: bytes that are not UTF-8 become replacement characters. */
export function entryPath(folder: VirtualPath, name: Buffer): VirtualPath {
  return `${folder === "/" ? "" : folder}/${name.toString("utf8")}` as VirtualPath;
}

export interface FolderEntry {
  /** As bytes: a name need not be UTF-8. */
  readonly name: Buffer;
  readonly type: EntryType;
}

/** The number of entries in one system call. */
const BATCH = 256;

/** The entries of a folder, as they are read. Entries added at the same time may be missing. */
export async function* entriesOf(folder: Descriptor): AsyncGenerator<FolderEntry> {
  // The types of Node do not know that names can be bytes here.
  const options = { encoding: "buffer" as BufferEncoding, bufferSize: BATCH };
  for await (const entry of await promises.opendir(folder.path(), options)) {
    const dirent = entry as unknown as Dirent<Buffer>;
    yield { name: dirent.name, type: typeOf(dirent) };
  }
}

/** Limits the entries and the depth that one operation works on. */
export class TreeBudget {
  readonly #path: string;
  readonly #verb: string;
  readonly #signal: AbortSignal | undefined;
  #entries = 0;

  constructor(path: string, verb: string, signal: AbortSignal | undefined) {
    this.#path = path;
    this.#verb = verb;
    this.#signal = signal;
  }

  take(depth: number): void {
    this.#signal?.throwIfAborted();
    const way = "Work on its subdirectories one by one.";
    if (++this.#entries > MAX_TREE_ENTRIES) {
      throw new FileSystemError(this.#path, this.#verb, `it contains more than ${MAX_TREE_ENTRIES} entries. ${way}`);
    }
    if (depth > MAX_TREE_DEPTH) {
      throw new FileSystemError(this.#path, this.#verb, `it is deeper than ${MAX_TREE_DEPTH} levels. ${way}`);
    }
  }
}
