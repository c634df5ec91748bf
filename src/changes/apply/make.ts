import fs from "node:fs";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import type { EntryFacts } from "../model/changeset.ts";
import { CONTENT_CHANGED, type Content } from "./open-mounts.ts";
import { refused, type Verdict } from "./verdict.ts";

/** A complete entry under a temporary name, in the folder where it will get its real name. */
export interface Made {
  readonly inode: string;
  /** Open until the entry has its real name, so that anything put there instead has another inode. */
  readonly descriptor: Descriptor;
  /** True if its content must be flushed to the disk first. */
  readonly unsynced: boolean;
}

/** Others can write to the folder too: Corral neither gives away nor puts in place what may not be its own. */
export const NOT_OURS: Verdict = refused("another process replaced its temporary file");

/** A copy of the run's file, with its modification time. Only its owner can read it until it is complete. */
export async function makeFile(
  next: EntryFacts,
  content: Content,
  folder: Descriptor,
  temporary: string,
  signal?: AbortSignal,
): Promise<Made | Verdict> {
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

export function makeFolder(next: EntryFacts, content: Content, parent: Descriptor, temporary: string): Made | Verdict {
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

export function makeLink(text: string, content: Content, folder: Descriptor, temporary: string): Made | Verdict {
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
function dress(made: Descriptor, { uid, gid }: Content, mode: number): void {
  if (isRoot()) fs.fchownSync(made.fd, uid, gid);
  fs.fchmodSync(made.fd, mode & 0o777);
}

function inodeOf({ fd }: Descriptor): string {
  return String(fs.fstatSync(fd, { bigint: true }).ino);
}
