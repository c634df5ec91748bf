import { statSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { hasCode } from "../../platform/errno.ts";

/** Other errors are thrown: then it is not known. */
export function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    if (hasCode(error, "ENOTDIR")) return false;
    throw error;
  }
}

/** None if there is no such directory. */
export async function namesIn(dir: string): Promise<string[]> {
  return await readdir(dir).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  });
}
