import { lstat } from "node:fs/promises";
import { resolve } from "node:path";
import type { Mount } from "../../sandbox/mount.ts";
import { faultOf, followed, plantedLinkFault } from "../place/host-place.ts";
import type { RawNeeds } from "./raw-needs.ts";

/** Every host folder that some worker of the project may write. */
export async function writableFolders(
  projectDir: string,
  declaration: { readonly mounts: readonly Mount[] },
  workers: ReadonlyMap<string, { readonly needs: RawNeeds }>,
): Promise<string[]> {
  const own = [...workers.values()].flatMap(({ needs }) => needs.paths ?? []).filter(({ mode }) => mode === "rw");
  const places = await Promise.all(own.map(({ root }) => followed(resolve(projectDir, root)).catch(() => null)));
  const declared = declaration.mounts.filter(({ mode }) => mode === "rw");
  return [...declared, ...places.filter((place) => place !== null)].map(({ host }) => host);
}

/** Why a file or folder of this machine may be a worker's, or be missing; else null. */
export async function exposureFault(path: string, writable: readonly string[]): Promise<string | null> {
  try {
    const { host, links } = await followed(path);
    await lstat(host);
    const shared = writable.some((folder) => holds(folder, host) || holds(host, folder));
    if (shared) return "is where a worker may write; a worker could change what Corral runs there";
    return plantedLinkFault(links, writable);
  } catch (error) {
    return faultOf(error);
  }
}

function holds(outer: string, inner: string): boolean {
  return outer === inner || inner.startsWith(outer === "/" ? "/" : `${outer}/`);
}
