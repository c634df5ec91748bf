import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir, opendir, readlink, rename, rm, symlink } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { pack } from "tar-stream";
import { tarEntries } from "../../platform/tar-entries.ts";
import { UsageError } from "../terminal/arguments.ts";

/** Of one folder. */
const MAX_ENTRIES = 200_000;

/** A folder of this machine as a tar archive; links stay links, and what is no file or folder is left out. */
export function folderArchive(dir: string): AsyncIterable<Uint8Array> {
  const archive = pack();
  const add = async (path: string, name: string): Promise<void> => {
    for await (const entry of await opendir(path)) {
      const [at, as] = [join(path, entry.name), `${name}${entry.name}`];
      const { mode, size } = await lstat(at);
      if (entry.isSymbolicLink()) archive.entry({ name: as, type: "symlink", linkname: await readlink(at) });
      else if (entry.isDirectory()) {
        archive.entry({ name: `${as}/`, type: "directory" });
        await add(at, `${as}/`);
      } else if (entry.isFile() && size === 0) archive.entry({ name: as, mode: mode & 0o777 }, "");
      else if (entry.isFile()) {
        const into = archive.entry({ name: as, mode: mode & 0o777, size });
        // A file that grows meanwhile is as it was when its size was read.
        await pipeline(createReadStream(at, { end: size - 1 }), into);
      }
    }
  };
  add(dir, "").then(
    () => archive.finalize(),
    (error: Error) => archive.destroy(error),
  );
  return archive as AsyncIterable<Uint8Array>;
}

/** Writes a file: it is complete, or as before. */
export async function receivedFile(pieces: AsyncIterable<Uint8Array>, to: string): Promise<number> {
  const part = join(dirname(to), `.${basename(to)}.${process.pid}.part`);
  try {
    await pipeline(Readable.from(pieces, { objectMode: false }), createWriteStream(part, { flags: "wx" }));
    await rename(part, to);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
  return 0;
}

/**
 * Writes a folder that a session made into a new one, and returns how many entries were left out. No link is there before the last file is:
 * none is followed. Links that lead out of the folder are none of it.
 */
export async function receivedFolder(pieces: AsyncIterable<Uint8Array>, to: string): Promise<number> {
  await mkdir(to).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "EEXIST") throw new UsageError(`${to} exists: a folder is written to a new one`);
    throw error;
  });
  const links: (readonly [path: string, target: string])[] = [];
  let [entries, skipped] = [0, 0];
  for await (const entry of tarEntries(pieces)) {
    entries += 1;
    if (entries > MAX_ENTRIES) throw new Error(`the folder has more than ${MAX_ENTRIES} entries`);
    const { name, type, linkname, mode = 0 } = entry.header;
    const plain = posix.normalize(name).replace(/\/$/, "");
    const leadsOut = (path: string): boolean => posix.isAbsolute(path) || path === ".." || path.startsWith("../");
    const path = join(to, plain);
    if (plain === ".") entry.resume();
    else if (leadsOut(plain) || plain.includes("\0")) throw new Error("the archive leads out of the folder");
    else if (type === "directory") {
      await mkdir(path, { recursive: true });
      entry.resume();
    } else if (type === "file") {
      await mkdir(dirname(path), { recursive: true });
      const bits = (mode & 0o100) === 0 ? 0o666 : 0o777;
      await pipeline(entry, createWriteStream(path, { flags: "wx", mode: bits }));
    } else {
      if (
        type === "symlink" &&
        linkname &&
        !leadsOut(posix.normalize(posix.join(posix.dirname(plain), linkname))) &&
        !posix.isAbsolute(linkname)
      )
        links.push([path, linkname]);
      else skipped += 1;
      entry.resume();
    }
  }
  for (const [path, target] of links) await symlink(target, path);
  return skipped;
}
