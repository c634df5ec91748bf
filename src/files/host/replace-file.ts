import fs from "node:fs";
import type { EntryType } from "../model/files.ts";
import { sync } from "./content.ts";
import { Descriptor } from "./descriptor.ts";
import { ownerIn } from "./folder.ts";
import { typeOf } from "./walk.ts";

/** What stands under a name in a folder, links themselves included; null where nothing does. */
export function lookUp(folder: Descriptor, name: string): { type: EntryType; stats: fs.Stats } | null {
  const stats = fs.lstatSync(folder.path(name), { throwIfNoEntry: false });
  return stats === undefined ? null : { type: typeOf(stats), stats };
}

/** A process that dies while it writes leaves a file of this prefix behind, and nothing else. */
export const TEMPORARY_PREFIX = ".corral-unfinished-";

export interface Replacement {
  /** Permission bits; null: those of any new file. */
  readonly mode: number | null;
  /** Null: the owner of the folder. */
  readonly owner: { readonly uid: number; readonly gid: number } | null;
  /** False: a name that is taken, be it since a moment ago, fails with EEXIST. */
  readonly overwrite: boolean;
  readonly fill: (file: Descriptor) => Promise<void>;
}

/** What a replacement keeps of the file that it replaces. */
export function keeping(stats: fs.Stats | undefined): Pick<Replacement, "mode" | "owner"> {
  return stats === undefined ? { mode: null, owner: null } : { mode: stats.mode, owner: stats };
}

/** Gives a file that was just made its owner and mode; only root can give files away. */
export function dress(
  file: Descriptor,
  folder: Descriptor,
  { mode, owner }: Pick<Replacement, "mode" | "owner">,
): void {
  const folderOwner = ownerIn(folder);
  const giveTo = folderOwner === null ? null : (owner ?? folderOwner);
  if (giveTo !== null) fs.fchownSync(file.fd, giveTo.uid, giveTo.gid);
  // As the kernel does for any writer, changed content loses the right to run as its owner.
  if (mode !== null) fs.fchmodSync(file.fd, mode & 0o777);
}

/**
 * Puts a new file under a name at once: it is filled and on the disk before it gets the name, so that a reader, and a
 * machine that crashed, has the old or the new one. A link or a hard link under that name is replaced, not written to.
 */
export async function replaceFile(folder: Descriptor, name: string, replacement: Replacement): Promise<void> {
  const temporary = folder.path(`${TEMPORARY_PREFIX}${crypto.randomUUID()}`);
  using file = Descriptor.create(temporary, 0o666);
  let named = false;
  try {
    dress(file, folder, replacement);
    await replacement.fill(file);
    await sync(file);
    if (replacement.overwrite) fs.renameSync(temporary, folder.path(name));
    else fs.linkSync(temporary, folder.path(name));
    named = replacement.overwrite;
  } finally {
    if (!named) fs.rmSync(temporary, { force: true });
  }
}
