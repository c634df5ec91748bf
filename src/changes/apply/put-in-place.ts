import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { codeOf, hasCode } from "../../platform/errno.ts";
import type { Change } from "../model/changeset.ts";
import { NOT_OURS } from "./make.ts";
import type { Slot } from "./open-mounts.ts";
import { type Standing, standingAt, whyConflict } from "./standing.ts";
import { APPLIED, conflict, impossible, type Verdict } from "./verdict.ts";

/** Puts what was made under its name at once, unless somebody changed what stands there. */
export function place(change: Change, { folder, name }: Slot, temporary: string, inode: string): Verdict {
  const before = standingAt(folder, name);
  if (isFolderThere(change, before)) return APPLIED;
  const reason = whyConflict(change, before);
  if (reason !== null) return conflict(reason);
  if (!isOurs(standingAt(folder, temporary), change, inode)) return NOT_OURS;
  try {
    const [fresh, taken] = [folder.path(temporary), folder.path(name)];
    if (change.kind === "modify" || change.type === "directory") fs.renameSync(fresh, taken);
    else takeFree(folder, fresh, taken, name);
  } catch (error) {
    return TAKEN.has(codeOf(error) ?? "") ? conflict(TAKEN_MEANWHILE) : impossible(error);
  }
  return isOurs(standingAt(folder, name), change, inode) ? APPLIED : conflict(TAKEN_MEANWHILE);
}

/** True where what was made for a change is what stands there. */
export function isOurs(now: Standing, { type }: Pick<Change, "type">, inode: string): boolean {
  return now !== null && now !== "other" && now.type === type && now.inode === inode;
}

/** A directory that is to be made and is there already serves as well. */
export function isFolderThere({ kind, type }: Change, now: Standing): boolean {
  return kind === "create" && type === "directory" && now !== null && now !== "other" && now.type === "directory";
}

/** Takes a file, a link or an empty directory away, unless somebody changed it. */
export function remove(change: Change, { folder, name }: Slot): Verdict {
  const reason = whyConflict(change, standingAt(folder, name));
  if (reason !== null) return conflict(reason);
  try {
    if (change.type === "directory") fs.rmdirSync(folder.path(name));
    else fs.unlinkSync(folder.path(name));
    return APPLIED;
  } catch (error) {
    if (hasCode(error, "ENOTEMPTY", "EEXIST")) return conflict("there is something in it by now");
    return hasCode(error, "ENOENT", "ENOTDIR", "EISDIR") ? conflict(TAKEN_MEANWHILE) : impossible(error);
  }
}

/** Gives a directory other permission bits; those that only its owner can mean (setgid, sticky) stay as they are. */
export function changeMode(change: Change, { folder, name }: Slot): Verdict {
  try {
    using found = folder.child(name, true).reopenFolder();
    const stats = fs.fstatSync(found.fd, { bigint: true });
    if (String(stats.ino) !== change.base?.inode) return conflict("it was replaced since the run began");
    fs.fchmodSync(found.fd, (Number(stats.mode) & 0o7000) | ((change.next?.mode ?? 0) & 0o777));
    fs.fsyncSync(found.fd);
    return APPLIED;
  } catch (error) {
    return hasCode(error, "ENOENT", "ENOTDIR") ? conflict("it is gone by now") : impossible(error);
  }
}

const TAKEN_MEANWHILE = "somebody else changed it at the same time";
const TAKEN = new Set(["EEXIST", "ENOTEMPTY", "ENOTDIR", "EISDIR", "ENOENT"]);

/** A second name first, which fails where somebody took it meanwhile; a rename would replace what they put there. */
function takeFree(folder: Descriptor, fresh: string, taken: string, name: string): void {
  try {
    fs.linkSync(fresh, taken);
  } catch (error) {
    // Some file systems have no hard links.
    if (!hasCode(error, "EPERM", "EOPNOTSUPP", "ENOSYS", "EMLINK")) throw error;
    if (standingAt(folder, name) !== null) throw Object.assign(new Error(TAKEN_MEANWHILE), { code: "EEXIST" });
    fs.renameSync(fresh, taken);
  }
}
