import fs from "node:fs";
import { dirname } from "node:path/posix";
import { Descriptor } from "./descriptor.ts";
import { ownerIn } from "./folder.ts";

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
