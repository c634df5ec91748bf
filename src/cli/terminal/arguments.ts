import { realpath } from "node:fs/promises";
import { resolve } from "node:path";
import { printableLine } from "../../operations/wording/printable.ts";
import type { Terminal } from "./terminal.ts";

/** The command line cannot be understood, or names what is not there. Nothing has been run; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** What an option that takes a date says, in milliseconds since 1970. A date alone is UTC. */
export function dateOf(option: string, text: string): number {
  const at = Date.parse(text);
  if (Number.isNaN(at))
    throw new UsageError(
      `${option} takes a date such as 2025-01-31 or 2025-01-31T14:00Z, not ${printableLine(text, 80)}`,
    );
  return at;
}

/** The folder of `--project`, for what Corral keeps of it: the folder itself may be gone. Absolute, without symbolic links. */
export async function projectFolder(dir: string, { cwd }: Pick<Terminal, "cwd">): Promise<string> {
  const path = resolve(cwd, dir);
  return await realpath(path).catch(() => path);
}
