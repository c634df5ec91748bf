import { lstat } from "node:fs/promises";
import { resolve } from "node:path";
import type { Mode, Mount } from "../../sandbox/mount.ts";
import type { Needs, PathNeed } from "../../sandbox/sandbox.ts";
import { holds } from "../../sandbox/virtual-path.ts";
import { type SecretSource, secretPlace } from "../../secrets/read-secret.ts";
import type { RawNetwork } from "../network/rule-terms.ts";
import { fileFault, followed, plantedLinkFault } from "../place/host-place.ts";

/** Every host folder that some worker of the project may write. */
export async function writableFolders(...project: WorkersOf): Promise<string[]> {
  return await foldersOf(project, (mode) => mode === "rw");
}

/** Every host folder that some worker of the project may see. */
export async function shownFolders(...project: WorkersOf): Promise<string[]> {
  return await foldersOf(project, () => true);
}

type WorkersOf = readonly [
  projectDir: string,
  declaration: { readonly mounts: readonly Mount[] },
  workers: ReadonlyMap<string, { readonly needs: RawNeeds }>,
];

async function foldersOf([projectDir, declaration, workers]: WorkersOf, has: (mode: Mode) => boolean) {
  const own = [...workers.values()].flatMap(({ needs }) => needs.paths ?? []).filter(({ mode }) => has(mode));
  const places = await Promise.all(own.map(({ root }) => followed(resolve(projectDir, root)).catch(() => null)));
  const declared = declaration.mounts.filter(({ mode }) => has(mode));
  return [...declared, ...places.filter((place) => place !== null)].map(({ host }) => host);
}

/** What of this machine workers reach, for the places of secrets. */
export interface Exposure {
  readonly writable: readonly string[];
  readonly shown: readonly string[];
  /** That of Corral's user. */
  readonly home: string | undefined;
}

/** What Corral reads or runs on this machine for a secret: as much the project's own as `corral.yaml`. Null: nothing. */
export function secretsPlace(source: SecretSource | null, home: string | undefined): string | null {
  if (source?.kind === "file") return secretPlace(source.path, home);
  return source?.kind === "command" && source.program.startsWith("/") ? source.program : null;
}

/** Why a worker could change the source of a secret or read it, and at which key; else null. */
export async function secretFault(
  source: SecretSource | null,
  { writable, shown, home }: Exposure,
): Promise<{ readonly at: readonly (string | number)[]; readonly fault: string } | null> {
  const place = secretsPlace(source, home);
  if (source?.kind === "file") {
    if (place === null) return { at: ["file"], fault: "is below `~`, and Corral does not know your home" };
    const fault = await exposureFault(place, writable);
    const { host } = fault === null ? await followed(place) : { host: null };
    const seen = host !== null && shown.some((folder) => holds(folder, host) || holds(host, folder));
    const advice = "is where a worker may read; put the secret outside of every directory that the project gives";
    return fault === null && !seen ? null : { at: ["file"], fault: fault ?? advice };
  }
  const fault = place === null ? null : await exposureFault(place, writable);
  return fault === null ? null : { at: ["command", 0], fault };
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
    return fileFault(error);
  }
}

/**
 * What a worker declares in its file: checked in form, but its paths are still text, as written: `/data/a.md`, `data/a.md`,
 * `data:a.md`, `~/a.md`.
 *
 * `resolveNeeds` makes `Needs` of it, once the caller's mounts are known. Absence has the same meaning as there.
 */
export interface RawNeeds
  extends Omit<Needs, "paths" | "allowRead" | "allowWrite" | "workingDir" | "network" | "policy"> {
  readonly paths?: readonly RawPathNeed[];
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  readonly workingDir?: string;
  readonly network?: RawNetwork;
}

export interface RawPathNeed extends Omit<PathNeed, "host"> {
  /** A host path, relative to the project. */
  readonly root: string;
}
