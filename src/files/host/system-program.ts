import { spawn } from "node:child_process";
import { existsSync, realpathSync, statSync } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";

/**
 * The whole environment of a system program that Corral starts: nothing is inherited. Newer versions of `mount` pass each
 * option by itself, and the kernel takes at most 255 bytes of one: the layers of an image need more.
 */
export const SYSTEM_ENV: Readonly<Record<string, string>> = {
  PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
  LC_ALL: "C",
  LIBMOUNT_FORCE_MOUNT2: "always",
};

/** Runs a program of the system, which finds `descriptors` as 3, 4 and so on. False if it fails or is not installed. */
export function runSystemProgram(
  program: string,
  args: readonly string[],
  descriptors: readonly number[] = [],
): Promise<boolean> {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "ignore", ...descriptors], env: SYSTEM_ENV });
  return new Promise((resolve) => {
    child.once("error", () => resolve(false)).once("close", (code) => resolve(code === 0));
  });
}

/** Where an Engine finds the programs that it starts. */
const PLACES = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec/docker"];

/** The program itself, behind all links. Null if there is none, or if anyone but root could replace it. */
export function trustedProgram(name: string): string | null {
  const named = name.startsWith("/") ? [name] : name === "" ? [] : PLACES.map((place) => join(place, name));
  const first = named.find((path) => existsSync(path));
  if (first === undefined) return null;
  const path = realpathSync(first);
  return statSync(path).isFile() && isOfRoot(path) ? path : null;
}

function isOfRoot(path: string): boolean {
  const { uid, mode } = statSync(path);
  if (uid !== 0 || (mode & 0o022) !== 0) return false;
  return path === "/" || isOfRoot(dirname(path));
}

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
