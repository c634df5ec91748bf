import { spawn } from "node:child_process";

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
