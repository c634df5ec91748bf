import fs, { type Dirent, promises } from "node:fs";
import { FileSystemError } from "../../sandbox/errors.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { MAX_TREE_DEPTH, MAX_TREE_ENTRIES } from "../model/bounds.ts";
import type { Deleted, EntryType } from "../model/files.ts";
import type { Descriptor } from "./descriptor.ts";
import { typeOf } from "./walk.ts";

/** Looks at a whole tree before anything in it is touched; `check` throws to refuse a file. */
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

/** Removes all that is in a folder, but not the folder. Links go themselves, and nothing behind them. */
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

/** For checks and texts only: a name that is not UTF-8 is shown with replacement characters. */
export function entryPath(folder: VirtualPath, name: Buffer): VirtualPath {
  return `${folder === "/" ? "" : folder}/${name.toString("utf8")}` as VirtualPath;
}

export interface Entry {
  /** As bytes: a name need not be UTF-8. */
  readonly name: Buffer;
  readonly type: EntryType;
}

/** How many entries the system is asked for at a time. */
const BATCH = 256;

/** What is in a folder, as it is read; what others add meanwhile may be missing. */
export async function* entriesOf(folder: Descriptor): AsyncGenerator<Entry> {
  // The types know no names as bytes here, which the system call gives.
  const options = { encoding: "buffer" as BufferEncoding, bufferSize: BATCH };
  for await (const entry of await promises.opendir(folder.path(), options)) {
    const dirent = entry as unknown as Dirent<Buffer>;
    yield { name: dirent.name, type: typeOf(dirent) };
  }
}

/** Counts what one operation touches, so that no tree keeps it busy without end. */
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
    const way = "Work on the directories in it one by one.";
    if (++this.#entries > MAX_TREE_ENTRIES) {
      throw new FileSystemError(this.#path, this.#verb, `it holds more than ${MAX_TREE_ENTRIES} entries. ${way}`);
    }
    if (depth > MAX_TREE_DEPTH) {
      throw new FileSystemError(this.#path, this.#verb, `it is deeper than ${MAX_TREE_DEPTH} levels. ${way}`);
    }
  }
}
