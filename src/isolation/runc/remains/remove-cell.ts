import fs from "node:fs";
import { readdir, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../../../files/host/remove-tree.ts";
import { hasCode } from "../../../platform/errno.ts";
import { cellPaths, type RuncPaths } from "../model/layout.ts";
import { killCell, removeGroups } from "./control-groups.ts";

/**
 * Ends a cell and removes everything of it, in any state, also one that is half made or half removed: processes, control
 * groups, runc's notes, and last its directory. Its root file system is mounted in namespaces that end with their processes.
 * Rejects with `EngineTrouble` if something cannot be removed; then the labels are still there.
 *
 * @param dir the directory of the cell.
 * @param hasEnded true if its runc has ended, so that nothing makes processes of it any more.
 */
export async function removeCell(paths: RuncPaths, id: string, dir: string, hasEnded = false): Promise<void> {
  if (!hasEnded) await killCell(id);
  await removeGroups(id);
  const state = join(paths.state, id);
  const { labels, over } = cellPaths(dir);
  if (!removedAtOnce(state, [join(state, STATE_FILE)])) await rm(state, { recursive: true, force: true });
  if (removedAtOnce(dir, [labels])) return;
  const names = await readdir(dir).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  });
  const others = names.map((name) => join(dir, name)).filter((path) => path !== labels);
  // A worker that may write over its image can make a tree there that is deeper than a path can be long.
  const isWritten = (path: string): Promise<boolean> =>
    readdir(path).then(
      (inside) => inside.length > 0,
      () => true,
    );
  await Promise.all(
    others.map(async (path) =>
      path === over && (await isWritten(path))
        ? await removeTree(path)
        : await rm(path, { recursive: true, force: true }),
    ),
  );
  await rm(labels, { force: true });
  await rmdir(dir).catch((error: unknown) => {
    if (!hasCode(error, "ENOENT")) throw error;
  });
}

/** What runc keeps of a cell. */
const STATE_FILE = "state.json";

/** Most cells leave nothing but these files: to remove them takes microseconds, and a turn of a thread for each takes longer. False if more is left. */
function removedAtOnce(dir: string, files: readonly string[]): boolean {
  try {
    if (fs.readdirSync(dir).length > files.length) return false;
    for (const file of files) fs.rmSync(file, { force: true });
    fs.rmdirSync(dir);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    if (hasCode(error, "ENOTEMPTY", "EISDIR", "ERR_FS_EISDIR")) return false;
    throw error;
  }
}
