import { readdir, readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { PACKAGE_ROOT } from "./package-root.ts";

/** A package of npm has no `.gitignore`, so a template calls it otherwise. */
const RENAMED: Readonly<Record<string, string>> = { gitignore: ".gitignore" };

/** The files of a template of the package, by their paths in the new project. */
export async function templateFiles(kind: string): Promise<ReadonlyMap<string, string>> {
  const folder = join(PACKAGE_ROOT, "templates", kind);
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = new Map<string, string>();
  for (const entry of entries.filter((one) => one.isFile())) {
    const path = join(entry.parentPath, entry.name);
    const name = relative(folder, path);
    files.set(RENAMED[name] ?? name, await readFile(path, "utf8"));
  }
  return new Map([...files].toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
