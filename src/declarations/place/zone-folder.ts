import { constants } from "node:fs";
import { lstat, mkdir, open, realpath, stat } from "node:fs/promises";
import { join, relative, resolve, sep } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import { CELL_USER_ID } from "../../sandbox/policy.ts";
import { DeclarationError, type Problem } from "../yaml/problem.ts";
import { fileFault, type HostPlace } from "./host-place.ts";

/** A zone's folder that does not exist. Opening the project for runs makes it; commands that only look do not. */
export interface NewZone {
  /** Absolute, with no symbolic link in it. */
  readonly host: string;
  /** Where the zone is declared. */
  readonly declared: Omit<Problem, "message">;
}

export type ZonePlace = HostPlace & { readonly isMissing?: true };

/**
 * The folder of a zone in `sandboxed` mode; makes nothing.
 *
 * It always lies inside the project: an untrusted repository may contain a `.sandbox` that is a link to a user's
 * home, and a project without any `corral.yaml` must not grant that.
 */
export async function zoneFolder(projectDir: string, root: string, path: string): Promise<ZonePlace> {
  const target = resolve(projectDir, root, path);
  if (!isInside(resolve(projectDir, root), target))
    return { ok: false, fault: "must be a folder below `root` with `mode: sandboxed`" };
  const parts = relative(projectDir, target).split(sep);
  let folder = projectDir;
  try {
    for (const [index, part] of parts.entries()) {
      const next = join(folder, part);
      if (await isFree(next))
        return { ok: true, host: join(folder, ...parts.slice(index)), directory: true, links: [], isMissing: true };
      folder = await realpath(next);
      if (!isInside(projectDir, folder))
        return { ok: false, fault: "leads out of the project through a symbolic link" };
    }
    if (!(await stat(folder)).isDirectory()) return { ok: false, fault: "is not a folder" };
    return { ok: true, host: folder, directory: true, links: [] };
  } catch (error) {
    return { ok: false, fault: fileFault(error) };
  }
}

/** The host paths of the folders that still do not exist. */
export async function stillMissing(newZones: readonly NewZone[]): Promise<string[]> {
  const free = await Promise.all(newZones.map(({ host }) => isFree(host).catch(() => false)));
  return newZones.flatMap(({ host }, index) => (free[index] ? [host] : []));
}

/** Makes the folders of zones. Throws one `DeclarationError` for those that cannot be made. */
export async function makeZoneFolders({
  dir,
  newZones,
}: {
  readonly dir: string;
  readonly newZones: readonly NewZone[];
}) {
  const problems: Problem[] = [];
  for (const { host, declared } of newZones) {
    const fault = await faultOfMaking(dir, host);
    if (fault !== null) problems.push({ ...declared, message: fault });
  }
  if (problems.length > 0) throw new DeclarationError(problems);
}

async function faultOfMaking(projectDir: string, host: string): Promise<string | null> {
  const parts = relative(projectDir, host).split(sep);
  let folder = projectDir;
  try {
    for (const [index, part] of parts.entries()) {
      folder = join(folder, part);
      if (await makeFolder(folder)) await giveToOwner(folder, projectDir, index === parts.length - 1);
      // There was no link when the project was read.
      if ((await realpath(folder)) !== folder) return "leads through a symbolic link that was made meanwhile";
    }
    return null;
  } catch (error) {
    return fileFault(error);
  }
}

/** True if nothing has this path. A link that leads nowhere is something. */
export async function isMissing(path: string): Promise<boolean> {
  return await isFree(path).catch(() => false);
}

/** A link that leads nowhere is not free. */
async function isFree(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return false;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    throw error;
  }
}

async function makeFolder(path: string): Promise<boolean> {
  try {
    await mkdir(path, 0o755);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  }
}

/**
 * Who has a zone's folder that Corral makes. A cell runs as the owner of the files that it writes. If root creates a zone in
 * another user's project, that user becomes its owner. In a project of root, the zone belongs to the default user of cells,
 * so that no cell runs as user 0.
 */
export async function ownerOfNewZone(projectDir: string): Promise<{ readonly uid: number; readonly gid: number }> {
  const [uid = 0, gid = 0] = [process.getuid?.(), process.getgid?.()];
  if (uid !== 0) return { uid, gid };
  const project = await stat(projectDir);
  return project.uid === 0 ? { uid: CELL_USER_ID, gid: CELL_USER_ID } : { uid: project.uid, gid: project.gid };
}

async function giveToOwner(folder: string, projectDir: string, isZone: boolean): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const project = await stat(projectDir);
  if (project.uid === 0 && !isZone) return;
  const { uid, gid } = await ownerOfNewZone(projectDir);
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await handle.chown(uid, gid);
  } finally {
    await handle.close();
  }
}

function isInside(folder: string, path: string): boolean {
  return path !== folder && path.startsWith(folder === sep ? sep : `${folder}${sep}`);
}

/** True if zones can have their folders there. */
export function isBelowProject(projectDir: string, root: string): boolean {
  return isInside(projectDir, resolve(projectDir, root));
}
