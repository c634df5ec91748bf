import { rm } from "node:fs/promises";
import { runSystemProgram } from "./system-program.ts";

/**
 * Removes a directory of Corral's own that a worker may have written to. The program `rm` walks by descriptor, so it also
 * removes trees that are deeper than a path can be long. Other file systems mounted inside are left alone. A directory that its owner may not
 * enter stops nobody: its owner changes that, and root need not.
 */
export async function removeTree(dir: string): Promise<void> {
  const removed = () => runSystemProgram("rm", ["-rf", "--one-file-system", "--", dir]);
  if (await removed()) return;
  if (process.getuid?.() !== 0 && (await runSystemProgram("chmod", ["-R", "u+rwx", "--", dir])) && (await removed()))
    return;
  await rm(dir, { recursive: true, force: true });
}
