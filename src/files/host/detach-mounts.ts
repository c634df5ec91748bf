import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { decodedMountField } from "./mount-field.ts";

/** Takes away every mount at or below a directory of Corral's own, the innermost first, so that it can be removed. */
export async function detachMountsBelow(dir: string): Promise<void> {
  const text = await readFile("/proc/self/mountinfo", "utf8").catch(() => "");
  const below = text
    .split("\n")
    .map((line) => decodedMountField(line.split(" ")[4] ?? ""))
    .filter((path) => path === dir || path.startsWith(`${dir}/`));
  for (const path of below.toReversed()) await detachMount(path);
}

/** One mount. Where something still holds it open it is out of sight at once, and gone when that is closed. */
export async function detachMount(path: string): Promise<void> {
  if (!(await unmount(["-i", path]))) await unmount(["-i", "-l", path]);
}

function unmount(args: readonly string[]): Promise<boolean> {
  const child = spawn("umount", args, {
    stdio: "ignore",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
  });
  return new Promise((resolve) => {
    child.once("error", () => resolve(false)).once("close", (code) => resolve(code === 0));
  });
}
