import { readdir, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { foundProject } from "./found-project.ts";
import { followed } from "./host-place.ts";

/**
 * Without a workers' folder nothing can run that could create one. A link to one of these files counts as the file itself,
 * because replacing the link replaces the file.
 */
export async function ownFilesOf(places: readonly (string | null)[]): Promise<string[]> {
  const found = new Set<string>();
  for (const place of places.filter((one) => one !== null)) {
    const names = await readdir(place).catch(() => []);
    for (const path of [place, ...names.map((name) => join(place, name))]) {
      const way = await followed(path).catch(() => null);
      for (const own of way === null ? [] : [...way.links, way.host]) found.add(own);
    }
  }
  return [...found];
}

/** A script that does not exist yet is also the project's own: a worker that may write there could create it. */
export async function stillToBe(files: readonly string[]): Promise<string[]> {
  const places: string[] = [];
  for (const file of files) if ((await realpath(file).catch(() => null)) === null) places.push(await placeToBe(file));
  return places;
}

/** Where it would be, once all that is missing on the way to it is made. */
async function placeToBe(path: string): Promise<string> {
  const folder = dirname(path);
  const known = await realpath(folder).catch(() => null);
  return join(known ?? (await placeToBe(folder)), basename(path));
}

/** The files of the nearest project, whose workers are not these. */
export async function filesAround(projectDir: string): Promise<string[]> {
  const around = await foundProject(projectDir);
  const dir = around.found ? around.dir : projectDir;
  return ["corral.yaml", "workers", "policies", "fleets"].map((name) => join(dir, name));
}
