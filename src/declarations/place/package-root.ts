import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * The folder of the Corral that runs: the nearest one with a `package.json`. It is searched for, because this file is three
 * levels below it in `src/` and `dist/`, and two where the command line is bundled.
 */
export const PACKAGE_ROOT = above(dirname(fileURLToPath(import.meta.url)));

function above(folder: string): string {
  if (existsSync(join(folder, "package.json"))) return folder;
  if (folder === "/") throw new Error("Corral's own package.json is missing; install Corral again");
  return above(dirname(folder));
}
