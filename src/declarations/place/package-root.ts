import { existsSync, readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

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

/** The folder of the images that `corral images build` builds. */
export const IMAGES_DIR = join(PACKAGE_ROOT, "images");

/** The composite action of GitHub that the package has. */
export async function githubAction(): Promise<string> {
  return await readFile(join(PACKAGE_ROOT, "action.yml"), "utf8");
}

export function packageVersion(): string {
  return (JSON.parse(readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8")) as { version: string }).version;
}

/** What the program contains besides its own code: how many packages, and the files that list them and have their licences. Null if it was not built. */
export function shippedPackages(): { readonly count: number; readonly list: string; readonly licences: string } | null {
  const [list, licences] = ["sbom.cdx.json", "THIRD-PARTY.txt"].map((name) => join(PACKAGE_ROOT, "dist", name));
  if (list === undefined || licences === undefined || !existsSync(list)) return null;
  const { components } = JSON.parse(readFileSync(list, "utf8")) as { components: readonly unknown[] };
  return { count: components.length, list, licences };
}
