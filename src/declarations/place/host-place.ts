import fs from "node:fs";
import { lstat, readdir, readlink, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import posix from "node:path/posix";
import { codeOf, hasCode } from "../../platform/errno.ts";
import { canonicalMounts, governingMount } from "../../sandbox/access.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { below, holds, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** Whether a path that a worker asked for is a directory, or is in one; null if neither can be granted. */
type AskedDirectory = "itself" | "around" | null;

/** The deepest host path that is walked. */
const MAX_COMPONENTS = 256;

/**
 * The directory that a worker's path means: itself, or the one around it if it is a file or does not exist
 * yet. `below` is the part of it below `base`, a host directory that is known to be none of the worker's making. No link
 * in it is followed, since the worker may have planted it; one anywhere, the last component included, means no directory.
 */
export async function askedDirectory(base: string, below: string): Promise<AskedDirectory> {
  const parts = below.split("/").filter((part) => part !== "");
  if (parts.length > MAX_COMPONENTS) return null;
  let place = base;
  if (parts.length === 0) return (await kindAt(base)) === "directory" ? "itself" : null;
  for (const [index, part] of parts.entries()) {
    place = join(place, part);
    const last = index === parts.length - 1;
    const kind = await kindAt(place);
    if (kind === "directory") continue;
    return last && (kind === "file" || kind === "nothing") ? "around" : null;
  }
  return "itself";
}

async function kindAt(place: string): Promise<"directory" | "file" | "nothing" | "other"> {
  try {
    const found = await lstat(place);
    return found.isDirectory() ? "directory" : found.isFile() ? "file" : "other";
  } catch (error) {
    return hasCode(error, "ENOENT") ? "nothing" : "other";
  }
}

/**
 * The real places of the host folders in which a worker may be granted something. Links in the owner's configuration are
 * followed, except one in a directory that a worker may write: such a folder, like a missing one, allows nothing.
 */
export async function allowedFolders(
  projectDir: string,
  written: readonly string[],
  writable: readonly string[],
): Promise<string[]> {
  const places = await Promise.all(written.map((raw) => resolveHostPlace(projectDir, raw)));
  return places.flatMap((place) =>
    place.ok && place.directory && plantedLinkFault(place.links, writable) === null ? [place.host] : [],
  );
}

export type HostPlace =
  | { readonly ok: true; readonly host: string; readonly directory: boolean; readonly links: readonly string[] }
  /** `fault` follows the name of the place, and contains no host path. */
  | { readonly ok: false; readonly fault: string };

/**
 * The real place of a host path that a project's owner wrote, relative to the project.
 *
 * Links in the owner's configuration are followed here, once. From then on a host path contains no link, and code that
 * opens one later must refuse to follow any. `links`: the paths of those that were followed, for callers that must know
 * whether a worker could have put them there.
 */
export async function resolveHostPlace(projectDir: string, raw: string): Promise<HostPlace> {
  try {
    const { host, links } = await followed(resolve(projectDir, raw));
    const found = await lstat(host);
    if (!found.isDirectory() && !found.isFile()) return { ok: false, fault: "is neither a folder nor a plain file" };
    return { ok: true, host, directory: found.isDirectory(), links };
  } catch (error) {
    return { ok: false, fault: fileFault(error) };
  }
}

/** As the system's own limit. */
const MAX_LINKS = 40;

/**
 * The real place of an absolute path, and the path of each link on the way to it. Both come from one walk: a link that is
 * put there a moment later is not followed unseen.
 */
export async function followed(path: string): Promise<{ readonly host: string; readonly links: readonly string[] }> {
  const links: string[] = [];
  const ahead = path.split("/").reverse();
  let host = "/";
  for (let part = ahead.pop(); part !== undefined; part = ahead.pop()) {
    if (part === "" || part === ".") continue;
    if (part === "..") {
      host = dirname(host);
      continue;
    }
    const next = join(host, part);
    if (!(await lstat(next)).isSymbolicLink()) {
      host = next;
      continue;
    }
    if (links.push(next) > MAX_LINKS) throw Object.assign(new Error("too many symbolic links"), { code: "ELOOP" });
    const text = await readlink(next);
    if (text.startsWith("/")) host = "/";
    ahead.push(...text.split("/").reverse());
  }
  return { host, links };
}

/** The fault of a place that a worker could have redirected by a link, or null. `writable`: host directories. */
export function plantedLinkFault(links: readonly string[], writable: readonly string[]): string | null {
  const planted = links.some((link) => writable.some((host) => link.startsWith(host === "/" ? "/" : `${host}/`)));
  return planted ? "leads through a symbolic link in a directory that a worker may write; use the real path" : null;
}

/** The file system's error as text. Errors that are not about this one place are rethrown. */
export function fileFault(error: unknown): string {
  const fault = FAULTS[codeOf(error) ?? ""];
  if (fault === undefined) throw error;
  return fault;
}

/** What to add if a file that a command line names is not there: a byte that is not UTF-8 reaches no program of Node. */
export function utf8Note(path: string): string {
  return path.includes("\uFFFD") ? ". Its name is not UTF-8, and only names that are can be given here: rename it" : "";
}

const FAULTS: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  ENOTDIR: "does not exist: a part of its path is not a folder",
  EACCES: "cannot be opened: permission denied",
  EPERM: "cannot be opened: permission denied",
  EROFS: "cannot be created: the file system is read-only",
  ELOOP: "cannot be opened: too many symbolic links",
  EAGAIN: "cannot be opened: another program holds it with a lease",
  EISDIR: "is a folder, not a file",
  ENAMETOOLONG: "cannot be opened: its name is too long",
};

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

/**
 * The directory that an allowlist entry means: itself, or the one around it if it is a file.
 *
 * No link below the mount is followed, since a worker may have planted it: such an entry stays as it is, and is
 * refused when it is opened. What does not exist yet stays as it is too.
 */
export function directoryOf(parent: Pick<Sandbox, "mounts">, path: VirtualPath): VirtualPath {
  const mount = governingMount(parent, path);
  const parts = mount === undefined ? [] : (below(mount.path, path) ?? "").split("/").filter((part) => part !== "");
  let host = mount?.host ?? "";
  for (const [index, part] of parts.entries()) {
    host = posix.join(host, part);
    const found = entryAt(host);
    if (found === null || found.isSymbolicLink()) return path;
    const last = index === parts.length - 1;
    if (!found.isDirectory()) return last ? (posix.dirname(path) as VirtualPath) : path;
  }
  return path;
}

/** Null if nothing is known to be there. One call for a name takes microseconds; to have another thread do it costs more. */
function entryAt(host: string): fs.Stats | null {
  try {
    return fs.lstatSync(host, { throwIfNoEntry: false }) ?? null;
  } catch {
    return null;
  }
}
