import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { codeOf, hasCode } from "../../platform/errno.ts";
import type { Change } from "../model/changeset.ts";
import { type CurrentEntry, currentEntry, whyConflict } from "./current-entry.ts";
import { NOT_OURS } from "./make.ts";
import type { Slot } from "./open-mounts.ts";
import { APPLIED, conflict, impossible, type Verdict } from "./verdict.ts";

/** Gives the new entry its real name atomically, unless the entry of that name changed since the run began. */
export function place(change: Change, { folder, name }: Slot, temporary: string, inode: string): Verdict {
  const before = currentEntry(folder, name);
  if (isFolderThere(change, before)) return APPLIED;
  const reason = whyConflict(change, before);
  if (reason !== null) return conflict(reason);
  if (!isOurs(currentEntry(folder, temporary), change, inode)) return NOT_OURS;
  try {
    const [fresh, taken] = [folder.path(temporary), folder.path(name)];
    if (change.kind === "modify" || change.type === "directory") fs.renameSync(fresh, taken);
    else takeFree(folder, fresh, taken, name);
  } catch (error) {
    return TAKEN.has(codeOf(error) ?? "") ? conflict(CHANGED_NOW) : impossible(error);
  }
  return isOurs(currentEntry(folder, name), change, inode) ? APPLIED : conflict(CHANGED_NOW);
}

/** True if the entry is the one that was made for the change. */
export function isOurs(now: CurrentEntry, { type }: Pick<Change, "type">, inode: string): boolean {
  return now !== null && now !== "other" && now.type === type && now.inode === inode;
}

/** A directory that already exists need not be made. */
export function isFolderThere({ kind, type }: Change, now: CurrentEntry): boolean {
  return kind === "create" && type === "directory" && now !== null && now !== "other" && now.type === "directory";
}

/** Deletes a file, a link or an empty directory, unless it changed since the run began. */
export function remove(change: Change, { folder, name }: Slot): Verdict {
  const reason = whyConflict(change, currentEntry(folder, name));
  if (reason !== null) return conflict(reason);
  try {
    if (change.type === "directory") fs.rmdirSync(folder.path(name));
    else fs.unlinkSync(folder.path(name));
    return APPLIED;
  } catch (error) {
    if (hasCode(error, "ENOTEMPTY", "EEXIST")) return conflict("it is no longer empty");
    return hasCode(error, "ENOENT", "ENOTDIR", "EISDIR") ? conflict(CHANGED_NOW) : impossible(error);
  }
}

/** Changes the permission bits of a directory. The bits above them (setgid, sticky) are kept. */
export function changeMode(change: Change, { folder, name }: Slot): Verdict {
  try {
    using found = folder.child(name, true).reopenFolder();
    const stats = fs.fstatSync(found.fd, { bigint: true });
    if (String(stats.ino) !== change.base?.inode) return conflict("it was replaced since the run began");
    fs.fchmodSync(found.fd, (Number(stats.mode) & 0o7000) | ((change.next?.mode ?? 0) & 0o777));
    fs.fsyncSync(found.fd);
    return APPLIED;
  } catch (error) {
    return hasCode(error, "ENOENT", "ENOTDIR") ? conflict("it was deleted since the run began") : impossible(error);
  }
}

const CHANGED_NOW = "another process changed it at the same time";
const TAKEN = new Set(["EEXIST", "ENOTEMPTY", "ENOTDIR", "EISDIR", "ENOENT"]);

/** A hard link fails if the name was taken in the meantime, while a rename would replace what is there. */
function takeFree(folder: Descriptor, fresh: string, taken: string, name: string): void {
  try {
    fs.linkSync(fresh, taken);
  } catch (error) {
    // Some file systems have no hard links.
    if (!hasCode(error, "EPERM", "EOPNOTSUPP", "ENOSYS", "EMLINK")) throw error;
    if (currentEntry(folder, name) !== null) throw Object.assign(new Error(CHANGED_NOW), { code: "EEXIST" });
    fs.renameSync(fresh, taken);
  }
}
