import { readdir, stat } from "node:fs/promises";
import type Docker from "dockerode";

/** The most processes, and open files of each, that are looked at. */
const MAX_PROCESSES = 5000;
const MAX_FILES = 5000;
/** A block of `st_blocks` (stat(2)). */
const BLOCK_BYTES = 512;

/**
 * What a cell's processes hold open of regular files that were deleted: they take space, and no directory shows them.
 * Null where that cannot be seen, as by a user who may not look into the cell's processes.
 */
export async function unnamedBytes(container: Docker.Container): Promise<number | null> {
  const table = (await container.top().catch(() => null)) as { Titles: string[]; Processes: string[][] } | null;
  if (table === null) return null;
  const column = table.Titles.indexOf("PID");
  const seen = new Set<string>();
  let bytes = 0;
  let isBlind = false;
  for (const process of table.Processes.slice(0, MAX_PROCESSES)) {
    const dir = `/proc/${Number(process[column])}/fd`;
    const names = await readdir(dir).catch((error: NodeJS.ErrnoException) => {
      isBlind ||= error.code === "EACCES" || error.code === "EPERM";
      return [] as string[];
    });
    for (const name of names.slice(0, MAX_FILES)) {
      const stats = await stat(`${dir}/${name}`).catch(() => null);
      if (stats === null || !stats.isFile() || stats.nlink > 0 || seen.has(`${stats.dev}:${stats.ino}`)) continue;
      seen.add(`${stats.dev}:${stats.ino}`);
      bytes += stats.blocks * BLOCK_BYTES;
    }
  }
  return isBlind ? null : bytes;
}
