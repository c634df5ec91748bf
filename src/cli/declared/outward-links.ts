import { lstat, opendir, readlink } from "node:fs/promises";
import { isAbsolute, join, relative, resolve } from "node:path";
import { printableLine } from "../../text/visible.ts";

/** A large folder is not held up by the search; what lies later is not announced. */
const MAX_SEEN = 2000;

/**
 * A line about symbolic links of a folder that lead out of it, and so to nothing, or to something of the cell's own; null if none was found among the first
 * entries. A link that is absolute means another place in the cell, even if it leads back into the folder here.
 */
export async function outwardLinks(folder: string): Promise<string | null> {
  const found: string[] = [];
  const waiting = [folder];
  let seen = 0;
  for (let dir = waiting.shift(); dir !== undefined && seen < MAX_SEEN; dir = waiting.shift()) {
    const entries = await opendir(dir).catch(() => null);
    if (entries === null) continue;
    for await (const entry of entries) {
      seen += 1;
      if (seen > MAX_SEEN) break;
      const path = join(dir, entry.name);
      if (entry.isDirectory()) waiting.push(path);
      else if (entry.isSymbolicLink() && (await leadsOut(path, dir, folder))) found.push(relative(folder, path));
    }
  }
  const [first] = found;
  if (first === undefined) return null;
  const others = found.length === 1 ? "" : ` and ${found.length - 1} more`;
  const what = found.length === 1 ? "a link leads" : "links lead";
  return `${what} out of ${printableLine(folder, 200)} and show nothing of this machine: ${printableLine(first, 200)}${others}`;
}

async function leadsOut(path: string, dir: string, folder: string): Promise<boolean> {
  const target = await readlink(path).catch(() => "");
  if (isAbsolute(target)) return true;
  const inside = relative(folder, resolve(dir, target));
  return inside === ".." || inside.startsWith("../");
}

/** Of the paths that are folders. */
export async function linkWarnings(paths: readonly string[]): Promise<string[]> {
  const lines = await Promise.all(
    paths.map(async (path) => {
      const isFolder = await lstat(`${path}/`).then(
        (one) => one.isDirectory(),
        () => false,
      );
      return isFolder ? await outwardLinks(path) : null;
    }),
  );
  return lines.filter((line) => line !== null);
}
