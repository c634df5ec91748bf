import { chown, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { CELL_USER_ID } from "../../sandbox/policy.ts";

/**
 * Lets a cell write a directory of Corral's own, with these files in it. The plan takes the owner for the cell's user: as root
 * that is no user of the machine, else Corral's own.
 */
export async function lendTree(
  tree: string,
  files: readonly { readonly name: string; readonly content: Buffer }[],
): Promise<void> {
  for (const { name, content } of files) await writeFile(join(tree, name), content, { flag: "wx", mode: 0o644 });
  if (process.getuid?.() === 0) await chown(tree, CELL_USER_ID, CELL_USER_ID);
}
