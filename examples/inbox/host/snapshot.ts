import { createHash } from "node:crypto";
import { lstat, readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";

/** The content of a folder, by path below it: the target of a link, the hash of a file's content. No link is followed. */
export type Snapshot = ReadonlyMap<string, string>;

/** A deeper folder is a trap for programs that walk the tree. */
const MAX_DEPTH = 16;

export async function snapshot(folder: string): Promise<Snapshot> {
  const found = new Map<string, string>();
  // Node's own recursive `readdir` follows links to directories, and a hostile document may create one.
  const walk = async (below: string, depth: number): Promise<void> => {
    if (depth > MAX_DEPTH) throw new Error(`${below} is more than ${MAX_DEPTH} folders deep`);
    for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
      const path = join(below, entry.name);
      found.set(path, await describe(join(folder, path)));
      if (entry.isDirectory()) await walk(path, depth + 1);
    }
  };
  await walk("", 0);
  return found;
}

async function describe(path: string): Promise<string> {
  const entry = await lstat(path);
  const mode = (entry.mode & 0o7777).toString(8);
  if (entry.isSymbolicLink()) return `link to ${await readlink(path)}`;
  if (entry.isDirectory()) return `folder ${mode} of ${entry.uid}:${entry.gid}`;
  if (!entry.isFile()) return "neither a file nor a folder";
  const hash = createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
  return `file ${hash} ${mode} of ${entry.uid}:${entry.gid}`;
}
