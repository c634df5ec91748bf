import fs from "node:fs";
import { hasCode } from "../../platform/errno.ts";
import { NotFoundError } from "../../sandbox/errors.ts";
import { covers } from "../../sandbox/virtual-path.ts";
import {
  type Deleted,
  type DeleteOptions,
  holdsMount,
  type Place,
  type TransferOptions,
  type Transferred,
  whyNotRegular,
} from "../model/files.ts";
import { HOLDS_MOUNT, intoItself, SAME_PLACE, unfit } from "../model/refusals.ts";
import { copyFound, type End, freeFor, taken } from "./copy.ts";
import type { Root } from "./descriptor.ts";
import { openSlot, type Slot } from "./folder.ts";
import { emptyFolder, refuseChanged, surveyTree, TreeBudget } from "./look.ts";
import { lookUp } from "./new-files.ts";
import { namesNear, typeOf, walk } from "./walk.ts";

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
