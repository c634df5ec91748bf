import { existsSync } from "node:fs";
import { lstat, readdir, readFile, stat } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { hasCode } from "../../platform/errno.ts";

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

/**
 * The folder of the Corral that runs: the nearest one with a `package.json`. It is searched for, because this file is three
 * levels below it in `src/`, and is a part of bundles in `dist/`.
 */
export const PACKAGE_ROOT = above(dirname(fileURLToPath(import.meta.url)));

/**
 * The code and the policies of the Corral that runs, and the packages that it imports. If a project has it in its own
 * `node_modules`, a worker that could write there would change what runs next on the host.
 */
export function corralsOwn(): string[] {
  const modules = /^.*?\/node_modules(?=\/)/.exec(PACKAGE_ROOT)?.[0];
  const inside = ["src", "dist", "policies", "images", "templates", "node_modules", "package.json"].map((name) =>
    join(PACKAGE_ROOT, name),
  );
  return [...(modules === undefined ? [] : [modules]), ...inside.filter((path) => existsSync(path))];
}

function above(folder: string): string {
  if (existsSync(join(folder, "package.json"))) return folder;
  if (folder === "/") throw new Error("Corral's own package.json is missing; install Corral again");
  return above(dirname(folder));
}

export type FoundProject =
  | { readonly found: true; readonly dir: string }
  /** `foreign`: the `corral.yaml` that is above and belongs to another user; null if there is none. */
  | { readonly found: false; readonly foreign: string | null };

/** The most folders that are searched. */
const MAX_FOLDERS = 256;

/**
 * The nearest folder with a `corral.yaml`, from `start` upwards. A project says what runs and what is shown to it, so one that
 * the user did not enter must be the user's own: in a folder such as `/tmp`, any user could have put one. A folder without
 * one, but with `workers`, is a project as well, if none is around it.
 */
export async function foundProject(start: string): Promise<FoundProject> {
  let dir = start;
  for (let looked = 0; looked < MAX_FOLDERS; looked += 1) {
    const file = join(dir, "corral.yaml");
    const owners = await ownersOf(file);
    if (owners !== null && dir !== start && !isTrusted([...owners, (await stat(dir)).uid]))
      return { found: false, foreign: file };
    if (owners !== null) return { found: true, dir };
    if (dir === dirname(dir)) break;
    dir = dirname(dir);
  }
  return (await ownersOf(join(start, "workers"))) === null
    ? { found: false, foreign: null }
    : { found: true, dir: start };
}

/** Of the file, and of the link if it is one. Null: there is nothing, or nothing that can be read. */
async function ownersOf(path: string): Promise<number[] | null> {
  try {
    const own = (await lstat(path)).uid;
    return [
      own,
      await stat(path).then(
        ({ uid }) => uid,
        () => own,
      ),
    ];
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "EACCES"].some((code) => hasCode(error, code))) return null;
    throw error;
  }
}

function isTrusted(owners: readonly number[]): boolean {
  const user = process.geteuid?.() ?? 0;
  return owners.every((owner) => owner === user || owner === 0);
}
