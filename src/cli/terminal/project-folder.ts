import { realpath } from "node:fs/promises";
import { resolve } from "node:path";
import type { Terminal } from "./terminal.ts";

/** The folder of `--project`, for what Corral keeps of it: the folder itself may be gone. Absolute, without symbolic links. */
export async function projectFolder(dir: string, { cwd }: Pick<Terminal, "cwd">): Promise<string> {
  const path = resolve(cwd, dir);
  return await realpath(path).catch(() => path);
}
