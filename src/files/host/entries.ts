import { type Dirent, promises } from "node:fs";
import { FileSystemError } from "../../sandbox/errors.ts";
import { MAX_TREE_DEPTH, MAX_TREE_ENTRIES } from "../model/bounds.ts";
import type { EntryType } from "../model/entry-type.ts";
import type { Descriptor } from "./descriptor.ts";
import { typeOf } from "./walk.ts";

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
