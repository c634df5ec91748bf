import { lstat } from "node:fs/promises";
import { resolve } from "node:path";

/** What an option says as `PATH=NAME` or as `PATH` alone. A path with `=` in it is taken whole if it exists. */
export async function namedPath(raw: string, cwd: string): Promise<{ readonly path: string; readonly name?: string }> {
  const equals = raw.lastIndexOf("=");
  const name = raw.slice(equals + 1);
  const named = equals > 0 && name !== "" && !name.includes("/") && !(await exists(resolve(cwd, raw)));
  return named ? { path: raw.slice(0, equals), name } : { path: raw };
}

async function exists(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    () => false,
  );
}
