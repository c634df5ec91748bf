import fs from "node:fs";
import { NotFoundError } from "../../sandbox/errors.ts";
import type { Deleted, DeleteOptions } from "../model/files.ts";
import { holdsMount, type Place } from "../model/place.ts";
import { HOLDS_MOUNT, unfit } from "../model/refusals.ts";
import { openSlot } from "./folder.ts";
import { refuseChanged } from "./look.ts";
import { namesNear } from "./names-near.ts";
import { lookUp } from "./replace-file.ts";
import type { Root } from "./roots.ts";
import { emptyFolder, surveyTree, TreeBudget } from "./tree.ts";

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

export function parentOf(place: Place): Place["path"] {
  const end = place.path.lastIndexOf("/");
  return (end <= 0 ? "/" : place.path.slice(0, end)) as Place["path"];
}
