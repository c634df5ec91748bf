import { constants } from "node:fs";
import { lstat, mkdir, open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { OwnFile } from "../plan/mounts.ts";

/** Files of Corral's own for one cell, on the host. Disposing removes them. */
export interface CellFiles extends AsyncDisposable {
  readonly files: readonly OwnFile[];
  /** Adds to a file, which stays the same file: the cell sees it at once. */
  append(path: string, text: string): Promise<void>;
}

/**
 * Writes what one cell is shown of Corral's own. `texts`: by their paths in the cell. `dir`: a directory that no worker can
 * write, and that is removed if this process dies.
 */
export async function writeCellFiles(
  dir: string,
  run: string,
  texts: Readonly<Record<string, string>>,
): Promise<CellFiles> {
  if (Object.keys(texts).length === 0)
    return { files: [], append: async () => {}, [Symbol.asyncDispose]: async () => {} };
  const folder = join(dir, `${run}.files`);
  await mkdir(folder, { mode: 0o755 });
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  try {
    const files: OwnFile[] = [];
    for (const [index, [path, text]] of Object.entries(texts).entries()) {
      const host = join(folder, String(index));
      await writeFile(host, text, { flag: "wx", mode: 0o644 });
      const { dev, ino, uid, gid } = await lstat(host, { bigint: true });
      const identity = { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid) };
      files.push({ path, host, source: { ...identity, kind: "file" } });
    }
    return { files, append: (path, text) => append(files, path, text), [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function append(files: readonly OwnFile[], path: string, text: string): Promise<void> {
  const file = files.find((each) => each.path === path);
  if (file === undefined) throw new RangeError(`the cell has no file of its own at ${path}`);
  await using opened = await open(file.host, constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW);
  await opened.appendFile(text);
}
