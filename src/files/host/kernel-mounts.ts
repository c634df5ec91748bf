import fs from "node:fs";
import { readFile } from "node:fs/promises";
import type { Descriptor } from "./descriptor.ts";
import { runSystemProgram } from "./system-program.ts";

/** Unmounts everything at or below a directory of Corral's own, innermost first, so that the directory can be removed. */
export async function detachMountsBelow(dir: string): Promise<void> {
  const text = await readFile("/proc/self/mountinfo", "utf8").catch(() => "");
  const below = text
    .split("\n")
    .map((line) => decodedMountField(line.split(" ")[4] ?? ""))
    .filter((path) => path === dir || path.startsWith(`${dir}/`));
  for (const path of below.toReversed()) await detachMount(path);
}

/** Unmounts one mount. One that is still in use is detached: it disappears now and ends when its last user closes it. */
export async function detachMount(path: string): Promise<void> {
  if (!(await runSystemProgram("umount", ["-i", path]))) await runSystemProgram("umount", ["-i", "-l", path]);
}

/** Decodes a field of mountinfo, in which spaces, tabs, newlines and backslashes are written as `\ooo` (proc(5)). */
export function decodedMountField(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/**
 * Identifies the mount of a descriptor (proc(5), `fdinfo`). The device number is not enough: a bind mount inside of a
 * directory can have the same device, and one overlay shows files of several devices.
 */
export function mountIdOf({ fd }: Descriptor): string {
  const text = fs.readFileSync(`/proc/self/fdinfo/${fd}`, "utf8");
  const id = /^mnt_id:\s*(\d+)$/m.exec(text)?.[1];
  if (id === undefined) throw new Error("the kernel reports no mount id for a descriptor");
  return id;
}
