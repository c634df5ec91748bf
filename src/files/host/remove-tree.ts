import { rm } from "node:fs/promises";
import { runSystemProgram } from "./system-program.ts";

/**
 * Removes a directory of Corral's own that a worker may have written to. The program `rm` walks by descriptor, so it also
 * removes trees that are deeper than a path can be long. Other file systems mounted inside are left alone.
 */
export async function removeTree(dir: string): Promise<void> {
  if (await runSystemProgram("rm", ["-rf", "--one-file-system", "--", dir])) return;
  await rm(dir, { recursive: true, force: true });
}
