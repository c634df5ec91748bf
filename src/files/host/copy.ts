import fs from "node:fs";
import { hasCode } from "../../platform/errno.ts";
import { NotFoundError } from "../../sandbox/errors.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import {
  type Deleted,
  type DeleteOptions,
  type Guard,
  holdsMount,
  type Place,
  type TransferOptions,
  type Transferred,
  whyNotRegular,
} from "../model/files.ts";
import { CHANGED, type FileOperation, HOLDS_MOUNT, intoItself, SAME_PLACE, TAKEN, unfit } from "../model/refusals.ts";
import { contentOf, copyContent } from "./content.ts";
import { Descriptor, type Root } from "./descriptor.ts";
import { openSlot, ownerIn, type Slot } from "./folder.ts";
import {
  emptyFolder,
  entriesOf,
  entryPath,
  openFoundFile,
  refuseChanged,
  surveyTree,
  TreeBudget,
  versionOf,
} from "./look.ts";
import { dress, keeping, lookUp, replaceFile, TEMPORARY_PREFIX } from "./new-files.ts";
import { type Found, namesNear, typeOf, walk } from "./walk.ts";

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
async function copyFound(
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
function freeFor(operation: FileOperation, slot: Slot, place: Place, overwrite: boolean): fs.Stats | undefined {
  const there = lookUp(slot.folder, slot.name);
  if (there === null) return undefined;
  const refusal = whyNotRegular(there.type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
  if (!overwrite) throw taken(operation, place);
  return there.stats;
}

function taken(operation: FileOperation, place: Place): Error {
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

/** Renames within a mount. Between two mounts it copies, then deletes the original. */
export async function movePlace(from: End, to: End, options: TransferOptions): Promise<Transferred> {
  if (from.place.path === to.place.path) throw unfit("move", from.place.path, SAME_PLACE);
  if (covers(from.place.path, to.place.path)) {
    throw unfit("move", from.place.path, intoItself(to.place.path));
  }
  using slot = openSlot("move", from.root, from.place);
  const there = lookUp(slot.folder, slot.name);
  if (there === null) throw new NotFoundError(from.place.path, namesNear(slot.folder, slot.name, parentOf(from.place)));
  if (there.type !== "directory") {
    const refusal = whyNotRegular(there.type);
    if (refusal !== null) throw unfit("move", from.place.path, refusal);
    options.checks?.write?.(from.place.path, 0);
    refuseChanged("move", from.place.path, slot.folder, slot.name, options.expected?.from);
  }
  if (holdsMount(from.root.hidden, from.place.path)) throw unfit("move", from.place.path, HOLDS_MOUNT);
  if (from.root !== to.root) return await moveAcross(slot, from, to, options);
  return there.type === "directory"
    ? await renameFolder(slot, from, to, options)
    : renameFile(slot, there.stats.size, from, to, options);
}

function renameFile(slot: Slot, size: number, from: End, to: End, options: TransferOptions): Transferred {
  options.checks?.read?.(from.place.path, size);
  options.checks?.write?.(to.place.path, size);
  using target = openSlot("move", to.root, to.place, true);
  refuseChanged("move", to.place.path, target.folder, target.name, options.expected?.to);
  const replaced = freeFor("move", target, to.place, options.overwrite ?? false);
  const [old, fresh] = [slot.folder.path(slot.name), target.folder.path(target.name)];
  if (replaced !== undefined || !linked(old, fresh)) fs.renameSync(old, fresh);
  else fs.unlinkSync(old);
  return { files: 1, bytes: size };
}

/** A hard link fails if the new name was taken in the meantime, while a rename would replace what is there. */
function linked(old: string, fresh: string): boolean {
  try {
    fs.linkSync(old, fresh);
    return true;
  } catch (error) {
    // Some file systems have no hard links, and the system may forbid a link to another user's file.
    if (hasCode(error, "EPERM", "EOPNOTSUPP", "EMLINK")) return false;
    throw error;
  }
}

async function renameFolder(slot: Slot, from: End, to: End, options: TransferOptions): Promise<Transferred> {
  using folder = slot.folder.child(slot.name, true);
  const budget = new TreeBudget(from.place.path, "move", options.signal);
  const surveyed = await surveyTree(folder, to.place.path, budget, (path, size) => options.checks?.write?.(path, size));
  using target = openSlot("move", to.root, to.place, true);
  if (lookUp(target.folder, target.name) !== null) throw taken("move", to.place);
  if (holdsMount(to.root.hidden, to.place.path)) throw unfit("move", to.place.path, HOLDS_MOUNT);
  fs.renameSync(slot.folder.path(slot.name), target.folder.path(target.name));
  return surveyed;
}

async function moveAcross(slot: Slot, from: End, to: End, options: TransferOptions): Promise<Transferred> {
  const { root, place } = from;
  using found = walk({ operation: "move", root, parts: place.parts, links: "refuse", asked: place.path });
  if (found.type === "directory") {
    // Everything must be removable before anything is copied.
    const budget = new TreeBudget(place.path, "move", options.signal);
    await surveyTree(found.descriptor, place.path, budget, (path) => options.checks?.write?.(path, 0));
  }
  const done = await copyFound("move", found, from, to, options);
  const now = slot.folder.child(slot.name);
  try {
    const stats = now.stat();
    if (stats.ino !== found.stats.ino || stats.mtimeMs !== found.stats.mtimeMs) {
      throw unfit(
        "move",
        place.path,
        `another process changed it at the same time: '${to.place.path}' has the older content.`,
      );
    }
    if (typeOf(stats) === "directory") {
      await emptyFolder(now, new TreeBudget(place.path, "move", options.signal));
      fs.rmdirSync(slot.folder.path(slot.name));
    } else fs.unlinkSync(slot.folder.path(slot.name));
  } finally {
    now[Symbol.dispose]();
  }
  return done;
}

export async function deletePlace(root: Root, place: Place, options: DeleteOptions): Promise<Deleted> {
  const check = options.checks?.write;
  using slot = openSlot("delete", root, place);
  const there = lookUp(slot.folder, slot.name);
  if (there === null) throw new NotFoundError(place.path, namesNear(slot.folder, slot.name, parentOf(place)));
  if (there.type !== "directory") {
    refuseChanged("delete", place.path, slot.folder, slot.name, options.expected?.from);
    // Size 0: a deletion never exceeds a size limit.
    if (there.type === "file") check?.(place.path, 0);
    fs.unlinkSync(slot.folder.path(slot.name));
    return { files: 1, folders: 0 };
  }
  if (holdsMount(root.hidden, place.path)) throw unfit("delete", place.path, HOLDS_MOUNT);
  let emptied: Deleted = { files: 0, folders: 0 };
  if (options.recursive) {
    using folder = slot.folder.child(slot.name, true);
    const budget = (): TreeBudget => new TreeBudget(place.path, "delete", options.signal);
    await surveyTree(folder, place.path, budget(), (path) => check?.(path, 0));
    emptied = await emptyFolder(folder, budget());
  }
  fs.rmdirSync(slot.folder.path(slot.name));
  return { files: emptied.files, folders: emptied.folders + 1 };
}

function parentOf(place: Place): Place["path"] {
  const end = place.path.lastIndexOf("/");
  return (end <= 0 ? "/" : place.path.slice(0, end)) as Place["path"];
}
