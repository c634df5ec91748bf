import fs from "node:fs";
import { dirname } from "node:path/posix";
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

export interface FileReplacement {
  /** Permission bits. Null: the default of a new file. */
  readonly mode: number | null;
  /** Null: the owner of the folder. */
  readonly owner: { readonly uid: number; readonly gid: number } | null;
  /** False: fails with EEXIST if the name is taken, even if it was free a moment ago. */
  readonly overwrite: boolean;
  readonly fill: (file: Descriptor) => Promise<void>;
}

/** Owner and mode that a replacement keeps from the file that it replaces. */
export function keeping(stats: fs.Stats | undefined): Pick<FileReplacement, "mode" | "owner"> {
  return stats === undefined ? { mode: null, owner: null } : { mode: stats.mode, owner: stats };
}

/** Sets owner and mode of a new file. Only root can change the owner. */
export function dress(
  file: Descriptor,
  folder: Descriptor,
  { mode, owner }: Pick<FileReplacement, "mode" | "owner">,
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
export async function replaceFile(folder: Descriptor, name: string, replacement: FileReplacement): Promise<void> {
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

/** A name is taken, by a file or by a link; nothing was written. */
export class NameTaken extends Error {
  /** As it was given. */
  readonly path: string;

  constructor(path: string) {
    super(`${path} already exists`);
    this.path = path;
  }
}

/**
 * Writes new files below a folder, all or none, through no link, and replaces nothing. Folders on the way are made. What root
 * makes belongs to the owner of the folder.
 *
 * @throws NameTaken for the first that is there
 */
export function writeNewFiles(dir: string, files: ReadonlyMap<string, string>): void {
  using top = Descriptor.name(dir, true);
  for (const path of files.keys()) if (isTaken(top, path)) throw new NameTaken(path);
  const made: (() => void)[] = [];
  try {
    for (const [path, text] of files) {
      using folder = openedFolder(top, dirname(path).split("/"), made);
      const name = path.split("/").at(-1) ?? "";
      using file = created(folder, name, path);
      const [{ ino }, at] = [file.stat(), folder.again()];
      made.push(() => {
        using _ = at;
        if (fs.lstatSync(at.path(name), { throwIfNoEntry: false })?.ino === ino) fs.unlinkSync(at.path(name));
      });
      give(file, folder);
      fs.fchmodSync(file.fd, 0o644);
      fs.writeFileSync(file.fd, text);
    }
    made.length = 0;
  } finally {
    for (const undo of made.reverse()) undo();
  }
}

function isTaken(top: Descriptor, path: string): boolean {
  const names = path.split("/");
  try {
    using folder = top.below(names.slice(0, -1));
    return fs.lstatSync(folder.path(names.at(-1) ?? ""), { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    // A link, or a file in the place of a folder: it is there, and is not followed.
    return (error as NodeJS.ErrnoException).code === "ENOTDIR";
  }
}

function openedFolder(top: Descriptor, names: readonly string[], made: (() => void)[]): Descriptor {
  let current = top.again();
  for (const name of names.filter((part) => part !== "" && part !== ".")) {
    using folder = current;
    if (fs.lstatSync(folder.path(name), { throwIfNoEntry: false }) === undefined) {
      fs.mkdirSync(folder.path(name), 0o755);
      using fresh = folder.child(name, true).reopenFolder();
      give(fresh, folder);
      const at = folder.again();
      made.push(() => {
        using _ = at;
        fs.rmdirSync(at.path(name));
      });
    }
    current = folder.child(name, true);
  }
  return current;
}

function created(folder: Descriptor, name: string, path: string): Descriptor {
  try {
    return Descriptor.create(folder.path(name), 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") throw new NameTaken(path);
    throw error;
  }
}

function give(made: Descriptor, folder: Descriptor): void {
  const owner = ownerIn(folder);
  if (owner !== null) fs.fchownSync(made.fd, owner.uid, owner.gid);
}
