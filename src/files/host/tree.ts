import fs, { type Dirent, promises } from "node:fs";
import { FileSystemError } from "../../sandbox/errors.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { type Deleted, type EntryType, MAX_TREE_DEPTH, MAX_TREE_ENTRIES } from "../model/files.ts";
import type { Descriptor } from "./descriptor.ts";
import { typeOf } from "./walk.ts";

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

export interface Entry {
  /** As bytes: a name need not be UTF-8. */
  readonly name: Buffer;
  readonly type: EntryType;
}

/** The number of entries in one system call. */
const BATCH = 256;

/** The entries of a folder, as they are read. Entries added at the same time may be missing. */
export async function* entriesOf(folder: Descriptor): AsyncGenerator<Entry> {
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
