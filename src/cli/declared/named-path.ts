import { lstat } from "node:fs/promises";
import path, { type PlatformPath } from "node:path";

/** What an option says as `PATH=NAME` or as `PATH` alone. A path with `=` in it is taken whole if it exists. `resolve`, `sep`: of another platform. */
export async function namedPath(
  raw: string,
  cwd: string,
  { resolve, sep }: Pick<PlatformPath, "resolve" | "sep"> = path,
): Promise<{ readonly path: string; readonly name?: string }> {
  const equals = raw.lastIndexOf("=");
  const name = raw.slice(equals + 1);
  const named =
    equals > 0 && name !== "" && !name.includes("/") && !name.includes(sep) && !(await exists(resolve(cwd, raw)));
  return named ? { path: raw.slice(0, equals), name } : { path: raw };
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null;
}
