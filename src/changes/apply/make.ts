import fs from "node:fs";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import { codeOf, hasCode } from "../../platform/errno.ts";
import type { Change, EntryFacts } from "../model/changeset.ts";
import { APPLIED, type ChangeVerdict, conflict, impossible, refused } from "./fitness.ts";
import {
  type ChangedContent,
  type ChangeSlot,
  CONTENT_CHANGED,
  type CurrentEntry,
  currentEntry,
  whyConflict,
} from "./open-mounts.ts";

/** Gives the new entry its real name atomically, unless the entry of that name changed since the run began. */
export function place(change: Change, { folder, name }: ChangeSlot, temporary: string, inode: string): ChangeVerdict {
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
export function remove(change: Change, { folder, name }: ChangeSlot): ChangeVerdict {
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
export function changeMode(change: Change, { folder, name }: ChangeSlot): ChangeVerdict {
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

/** A complete entry under a temporary name, in the folder where it will get its real name. */
export interface Made {
  readonly inode: string;
  /** Open until the entry has its real name, so that anything put there instead has another inode. */
  readonly descriptor: Descriptor;
  /** True if its content must be flushed to the disk first. */
  readonly unsynced: boolean;
}

/** Others can write to the folder too: Corral neither gives away nor puts in place what may not be its own. */
export const NOT_OURS: ChangeVerdict = refused("another process replaced its temporary file");

/** A copy of the run's file, with its modification time. Only its owner can read it until it is complete. */
export async function makeFile(
  next: EntryFacts,
  content: ChangedContent,
  folder: Descriptor,
  temporary: string,
  signal?: AbortSignal,
): Promise<Made | ChangeVerdict> {
  using from = content.descriptor.reopen(fs.constants.O_RDONLY);
  const file = Descriptor.create(folder.path(temporary), 0o600);
  try {
    const source = contentOf(from);
    const copied = await copyContent(source, file, signal);
    if (source.changed() || copied !== next.size) {
      file[Symbol.dispose]();
      return CONTENT_CHANGED;
    }
    dress(file, content, next.mode);
    const seconds = Number(content.mtimeNs) / 1e9;
    fs.futimesSync(file.fd, seconds, seconds);
    return { inode: inodeOf(file), descriptor: file, unsynced: true };
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
}

export function makeFolder(
  next: EntryFacts,
  content: ChangedContent,
  parent: Descriptor,
  temporary: string,
): Made | ChangeVerdict {
  fs.mkdirSync(parent.path(temporary), 0o700);
  const folder = parent.child(temporary, true).reopenFolder();
  const { uid, nlink } = folder.stat();
  if (uid !== process.geteuid?.() || nlink > 2 || fs.readdirSync(folder.path()).length > 0) {
    folder[Symbol.dispose]();
    return NOT_OURS;
  }
  dress(folder, content, next.mode);
  return { inode: inodeOf(folder), descriptor: folder, unsynced: true };
}

export function makeLink(
  text: string,
  content: ChangedContent,
  folder: Descriptor,
  temporary: string,
): Made | ChangeVerdict {
  fs.symlinkSync(text, folder.path(temporary));
  const link = folder.child(temporary);
  const stats = link.stat();
  if (!stats.isSymbolicLink() || stats.uid !== process.geteuid?.() || stats.nlink !== 1) {
    link[Symbol.dispose]();
    return NOT_OURS;
  }
  // The path of the descriptor always means this link itself, even if another process replaced the name.
  if (isRoot()) fs.chownSync(link.path(), content.uid, content.gid);
  return { inode: inodeOf(link), descriptor: link, unsynced: false };
}

/** Sets owner and permission bits, but never setuid or setgid. */
function dress(made: Descriptor, { uid, gid }: ChangedContent, mode: number): void {
  if (isRoot()) fs.fchownSync(made.fd, uid, gid);
  fs.fchmodSync(made.fd, mode & 0o777);
}

function inodeOf({ fd }: Descriptor): string {
  return String(fs.fstatSync(fd, { bigint: true }).ino);
}
