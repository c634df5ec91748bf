import { readdir, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import posix from "node:path/posix";
import { canonicalMounts, governingMount } from "../../sandbox/access.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { holds, joinVirtual } from "../../sandbox/virtual-path.ts";
import { foundProject } from "./found-project.ts";
import { followed } from "./host-place.ts";

/*
 * A project's own files say what the next run may do. A worker that can write them grants itself what it likes, one run
 * later; so no worker writes them. What protects them is the mount at the first step below the writable one: it needs no folder
 * that is held in its place, and it also protects what is added beside them.
 */

/** Takes the project's own files out of what the root form lets workers write: each is a read-only mount of its own. */
export function withOwnFilesReadOnly(mounts: readonly Mount[], ownFiles: readonly string[]): readonly Mount[] {
  const shields = mounts
    .filter((mount) => mount.mode === "rw")
    .flatMap((mount) => ownFiles.flatMap((file) => shieldOf(mount, file) ?? []));
  return canonicalMounts([...mounts, ...new Map(shields.map((shield) => [shield.path, shield])).values()]);
}

/** Every writable mount through which the project's own files could be changed. */
export function exposedOwnFiles(sandbox: Sandbox, ownFiles: readonly string[]): Violation[] {
  return sandbox.mounts
    .filter((mount) => mount.mode === "rw" && ownFiles.some((file) => isExposed(sandbox, mount, file)))
    .map(({ path }) => ({
      code: "MOUNT_SOURCE_REFUSED",
      path,
      reason:
        "a worker that writes there could change the project's own corral.yaml, workers, policies or lock files; mount it read-only",
    }));
}

function isExposed(sandbox: Sandbox, mount: Mount, file: string): boolean {
  if (holds(file, originOf(mount))) return true;
  const shield = shieldOf(mount, file);
  if (shield === null) return false;
  const governing = governingMount(sandbox, shield.path);
  // If another mount is there, the worker does not see the project's file at all.
  return governing === mount || (governing?.mode === "rw" && originOf(governing) === shield.host);
}

/** The read-only mount that would protect `file` below `mount`; null if the file is not below it. */
function shieldOf(mount: Mount, file: string): Mount | null {
  const origin = originOf(mount);
  if (origin === file || !holds(origin, file)) return null;
  const [first = ""] = posix.relative(origin, file).split("/");
  const { view: _, ...shown } = mount;
  return { ...shown, path: joinVirtual(mount.path, first), host: posix.join(origin, first), mode: "ro" };
}

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
