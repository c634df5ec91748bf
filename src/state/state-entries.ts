import { lstat, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../files/host/remove-tree.ts";
import { nullFor } from "../platform/errno.ts";

/** An entry of a directory of the state; a link is itself, and not what it leads to. */
export interface StateEntry {
  readonly name: string;
  readonly path: string;
  readonly isFolder: boolean;
  readonly bytes: number;
  readonly modifiedMs: number;
}

/** More entries of one directory are not read. */
const MAX_ENTRIES = 1_000_000;

/** Those whose name fits; none if the directory does not exist. */
export async function stateEntries(dir: string, fits: RegExp): Promise<StateEntry[]> {
  const names = (await readdir(dir).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  const entries: StateEntry[] = [];
  for (const name of names.filter((one) => fits.test(one)).slice(0, MAX_ENTRIES)) {
    const path = join(dir, name);
    const found = await lstat(path).catch(nullFor("ENOENT"));
    if (found === null) continue;
    const { blocks, mtimeMs } = found;
    entries.push({ name, path, isFolder: found.isDirectory(), bytes: blocks * 512, modifiedMs: mtimeMs });
  }
  return entries;
}

/** False if another process was faster. A folder is renamed first, so that no other process uses a part of it. */
export async function removeStateEntry({ path, isFolder }: StateEntry): Promise<boolean> {
  if (!isFolder) return (await rm(path).then(() => true, nullFor("ENOENT"))) ?? false;
  const away = `${path}.removed`;
  if ((await rename(path, away).then(() => true, nullFor("ENOENT", "ENOTEMPTY", "EEXIST"))) === null) return false;
  await removeTree(away);
  return true;
}
