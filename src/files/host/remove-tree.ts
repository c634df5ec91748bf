import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";

/**
 * Removes a directory of Corral's own in which a worker may have written: trees deeper than a path can be long among
 * them, which only a program that walks by descriptor can remove. What is mounted in it is left alone.
 */
export async function removeTree(dir: string): Promise<void> {
  if (await removedByProgram(dir)) return;
  await rm(dir, { recursive: true, force: true });
}

function removedByProgram(dir: string): Promise<boolean> {
  const child = spawn("rm", ["-rf", "--one-file-system", "--", dir], {
    stdio: "ignore",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
  });
  return new Promise((resolve) => {
    child.once("error", () => resolve(false)).once("close", (code) => resolve(code === 0));
  });
}
