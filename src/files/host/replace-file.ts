import fs from "node:fs";
import type { EntryType } from "../model/files.ts";
import { sync } from "./content.ts";
import { Descriptor } from "./descriptor.ts";
import { ownerIn } from "./folder.ts";
import { typeOf } from "./walk.ts";

/** The entry of that name in a folder; a link is not followed. Null if there is none. */
export function lookUp(folder: Descriptor, name: string): { type: EntryType; stats: fs.Stats } | null {
  const stats = fs.lstatSync(folder.path(name), { throwIfNoEntry: false });
  return stats === undefined ? null : { type: typeOf(stats), stats };
}

/** A process that is killed while it writes leaves a file with this prefix behind, and nothing else. */
export const TEMPORARY_PREFIX = ".corral-unfinished-";

export interface Replacement {
  /** Permission bits. Null: the default of a new file. */
  readonly mode: number | null;
  /** Null: the owner of the folder. */
  readonly owner: { readonly uid: number; readonly gid: number } | null;
  /** False: fails with EEXIST if the name is taken, even if it was free a moment ago. */
  readonly overwrite: boolean;
  readonly fill: (file: Descriptor) => Promise<void>;
}

/** Owner and mode that a replacement keeps from the file that it replaces. */
export function keeping(stats: fs.Stats | undefined): Pick<Replacement, "mode" | "owner"> {
  return stats === undefined ? { mode: null, owner: null } : { mode: stats.mode, owner: stats };
}

/** Sets owner and mode of a new file. Only root can change the owner. */
export function dress(
  file: Descriptor,
  folder: Descriptor,
  { mode, owner }: Pick<Replacement, "mode" | "owner">,
): void {
  const folderOwner = ownerIn(folder);
  const giveTo = folderOwner === null ? null : (owner ?? folderOwner);
  if (giveTo !== null) fs.fchownSync(file.fd, giveTo.uid, giveTo.gid);
  // Changed content loses setuid and setgid, as the kernel does for any writer.
  if (mode !== null) fs.fchmodSync(file.fd, mode & 0o777);
}

/**
 * Replaces a file atomically: the new one is complete and flushed before it gets the name, so that a reader sees the old or
 * the new one, even after a crash. A link or hard link of that name is replaced, not written to.
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
