import { constants, copyFileSync, linkSync } from "node:fs";
import { join } from "node:path";

/** No account has this number; all that counts is that it is not root, who may read everything. */
export const OTHER = 23456;

/**
 * The Node of these tests as `node` in this folder, where {@link OTHER} can start it: the checkout may be below a folder that only root may
 * enter, as `/root` is, and what `mktemp -d` makes. Whatever else it is to load has to be copied as well.
 */
export function nodeIn(folder: string): string {
  const node = join(folder, "node");
  try {
    linkSync(process.execPath, node);
  } catch {
    // The folder is on another disk.
    copyFileSync(process.execPath, node, constants.COPYFILE_FICLONE);
  }
  return node;
}
