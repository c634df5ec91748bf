import fs from "node:fs";
import { hasCode } from "../../platform/errno.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import {
  type Guard,
  holdsMount,
  type Place,
  type TransferOptions,
  type Transferred,
  whyNotRegular,
} from "../model/files.ts";
import { CHANGED, type FileOperation, HOLDS_MOUNT, intoItself, TAKEN, unfit } from "../model/refusals.ts";
import { contentOf, copyContent } from "./content.ts";
import { Descriptor, type Root } from "./descriptor.ts";
import { openSlot, ownerIn, type Slot } from "./folder.ts";
import { emptyFolder, entriesOf, entryPath, openFoundFile, refuseChanged, TreeBudget, versionOf } from "./look.ts";
import { dress, keeping, lookUp, replaceFile, TEMPORARY_PREFIX } from "./new-files.ts";
import { type Found, typeOf, walk } from "./walk.ts";

interface CopyPaths {
  readonly from: VirtualPath;
  readonly to: VirtualPath;
}

/** Copies the contents of a folder, which must be files and folders only. Every file is checked before it is copied. */
class TreeCopy {
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

function giveFolder(named: Descriptor, parent: Descriptor, mode: number): void {
  using folder = named.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  const owner = ownerIn(parent);
  if (owner !== null) fs.fchownSync(folder.fd, owner.uid, owner.gid);
  fs.fchmodSync(folder.fd, mode & 0o777);
}

/** One end of a copy or a move. */
export interface End {
  readonly root: Root;
  readonly place: Place;
}

export async function copyPlace(from: End, to: End, options: TransferOptions): Promise<Transferred> {
  const { root, place } = from;
  using found = walk({ operation: "copy", root, parts: place.parts, links: "follow", asked: place.path });
  return await copyFound("copy", found, from, to, options);
}

/** Copies what a walk found: a file, or a folder with everything in it. */
export async function copyFound(
  operation: FileOperation,
  found: Found,
  from: End,
  to: End,
  options: TransferOptions,
): Promise<Transferred> {
  if (found.type === "directory") return await copyFolder(operation, found, from, to, options);
  using source = openFoundFile(operation, from.place, found);
  const { size, mode } = source.stat();
  const refuseOther = (): void => {
    const { from: shown } = options.expected ?? {};
    if (shown !== undefined && shown !== versionOf(source.stat())) throw unfit(operation, from.place.path, CHANGED);
  };
  refuseOther();
  options.checks?.read?.(found.path, size);
  options.checks?.write?.(to.place.path, size);
  using slot = openSlot(operation, to.root, to.place, true);
  const there = freeFor(operation, slot, to.place, options.overwrite ?? false);
  await replaceFile(slot.folder, slot.name, {
    ...(there === undefined ? { mode, owner: null } : keeping(there)),
    overwrite: there !== undefined,
    fill: async (file) => {
      await copyContent(contentOf(source), file, options.signal);
      refuseOther();
      refuseChanged(operation, to.place.path, slot.folder, slot.name, options.expected?.to);
    },
  });
  return { files: 1, bytes: size };
}

/** The file that would be replaced; undefined if the name is free. Throws if it cannot be replaced. */
export function freeFor(operation: FileOperation, slot: Slot, place: Place, overwrite: boolean): fs.Stats | undefined {
  const there = lookUp(slot.folder, slot.name);
  if (there === null) return undefined;
  const refusal = whyNotRegular(there.type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
  if (!overwrite) throw taken(operation, place);
  return there.stats;
}

export function taken(operation: FileOperation, place: Place): Error {
  return unfit(operation, place.path, TAKEN);
}

/** The copy gets its name when it is complete. If copying fails, nothing of it remains. */
async function copyFolder(
  operation: FileOperation,
  found: Found,
  from: End,
  to: End,
  options: TransferOptions,
): Promise<Transferred> {
  if (covers(found.path, to.place.path) || covers(from.place.path, to.place.path)) {
    throw unfit(operation, from.place.path, intoItself(to.place.path));
  }
  if (holdsMount(from.root.hidden, found.path)) throw unfit(operation, from.place.path, HOLDS_MOUNT);
  using slot = openSlot(operation, to.root, to.place, true);
  if (lookUp(slot.folder, slot.name) !== null) throw taken(operation, to.place);

  const temporary = `${TEMPORARY_PREFIX}${crypto.randomUUID()}`;
  fs.mkdirSync(slot.folder.path(temporary));
  try {
    using copy = slot.folder.child(temporary, true);
    using source = found.descriptor.again();
    const paths = { from: found.path, to: to.place.path };
    const budget = new TreeBudget(from.place.path, operation, options.signal);
    const done = await new TreeCopy(operation, from.place, options, budget).copy(source, copy, paths);
    giveFolder(copy, slot.folder, source.stat().mode);
    fs.renameSync(slot.folder.path(temporary), slot.folder.path(slot.name));
    return done;
  } catch (error) {
    await removeUnfinished(slot.folder, temporary, new TreeBudget(from.place.path, operation, undefined)).catch(
      () => {},
    );
    throw error;
  }
}

/** An empty one is removed without a descriptor, of which there may be none left. */
async function removeUnfinished(folder: Descriptor, name: string, budget: TreeBudget): Promise<void> {
  try {
    fs.rmdirSync(folder.path(name));
  } catch (error) {
    if (!hasCode(error, "ENOTEMPTY")) throw error;
    using copy = folder.child(name, true);
    await emptyFolder(copy, budget);
    fs.rmdirSync(folder.path(name));
  }
}
