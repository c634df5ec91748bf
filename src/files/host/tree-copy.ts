import fs from "node:fs";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Guard, Transferred } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { type FileOperation, unfit } from "../model/refusals.ts";
import { contentOf, copyContent } from "./content.ts";
import { Descriptor } from "./descriptor.ts";
import { ownerIn } from "./folder.ts";
import { dress } from "./replace-file.ts";
import { entriesOf, entryPath, type TreeBudget } from "./tree.ts";
import { typeOf } from "./walk.ts";

interface CopyPaths {
  readonly from: VirtualPath;
  readonly to: VirtualPath;
}

/** Copies the contents of a folder, which must be files and folders only. Every file is checked before it is copied. */
export class TreeCopy {
  readonly #operation: FileOperation;
  readonly #from: Place;
  readonly #guard: Guard;
  readonly #budget: TreeBudget;

  constructor(operation: FileOperation, from: Place, guard: Guard, budget: TreeBudget) {
    this.#operation = operation;
    this.#from = from;
    this.#guard = guard;
    this.#budget = budget;
  }

  async copy(from: Descriptor, to: Descriptor, paths: CopyPaths, depth = 1): Promise<Transferred> {
    let files = 0;
    let bytes = 0;
    for await (const { name } of entriesOf(from)) {
      this.#budget.take(depth);
      const inner = { from: entryPath(paths.from, name), to: entryPath(paths.to, name) };
      using entry = from.child(name);
      if (entry.stat().isDirectory()) {
        fs.mkdirSync(to.path(name));
        using target = to.child(name, true);
        const done = await this.copy(entry, target, inner, depth + 1);
        giveFolder(target, to, entry.stat().mode);
        files += done.files;
        bytes += done.bytes;
      } else {
        bytes += await this.#copyFile(entry, to, name, inner);
        files++;
      }
    }
    return { files, bytes };
  }

  async #copyFile(entry: Descriptor, to: Descriptor, name: Buffer, paths: CopyPaths): Promise<number> {
    const type = typeOf(entry.stat());
    if (type !== "file") {
      const what = type === "link" ? "a symbolic link" : "not a regular file";
      throw unfit(
        this.#operation,
        this.#from.path,
        `it contains '${paths.from}', which is ${what}. Delete that, or copy single files.`,
      );
    }
    using source = entry.reopen(fs.constants.O_RDONLY);
    const { size, mode } = source.stat();
    this.#guard.checks?.read?.(paths.from, size);
    this.#guard.checks?.write?.(paths.to, size);
    using file = Descriptor.create(to.path(name), 0o600);
    await copyContent(contentOf(source), file, this.#guard.signal);
    dress(file, to, { mode, owner: null });
    return size;
  }
}

export function giveFolder(named: Descriptor, parent: Descriptor, mode: number): void {
  using folder = named.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  const owner = ownerIn(parent);
  if (owner !== null) fs.fchownSync(folder.fd, owner.uid, owner.gid);
  fs.fchmodSync(folder.fd, mode & 0o777);
}
