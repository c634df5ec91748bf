import { constants } from "node:fs";
import { mkdir, open, realpath, stat } from "node:fs/promises";
import { join, relative, resolve, sep } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import { faultOf, type HostPlace } from "./host-place.ts";

/** The default user of cells; no account has that number. */
const NOBODY = 65532;

/**
 * The folder of a zone in `sandboxed` mode, created if it is missing.
 *
 * It always lies inside the project: an untrusted repository may contain a `.sandbox` that is a link to a user's
 * home, and a project without any `corral.yaml` must not grant that.
 */
export async function ensureZoneFolder(projectDir: string, root: string, name: string): Promise<HostPlace> {
  const target = resolve(projectDir, root, name);
  if (!isInside(projectDir, target)) return { ok: false, fault: "must stay inside the project with `mode: sandboxed`" };
  const parts = relative(projectDir, target).split(sep);
  let folder = projectDir;
  try {
    for (const [index, part] of parts.entries()) {
      const next = join(folder, part);
      if (await makeFolder(next)) await giveToOwner(next, projectDir, index === parts.length - 1);
      folder = await realpath(next);
      if (!isInside(projectDir, folder))
        return { ok: false, fault: "leads out of the project through a symbolic link" };
    }
    if (!(await stat(folder)).isDirectory()) return { ok: false, fault: "is not a folder" };
    return { ok: true, host: folder, directory: true, links: [] };
  } catch (error) {
    return { ok: false, fault: faultOf(error) };
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
 * A cell runs as the owner of the files that it writes. If root creates a zone in another user's project, that user becomes
 * its owner. In a project of root, the zone belongs to the default user of cells, so that no cell runs as user 0.
 */
async function giveToOwner(folder: string, projectDir: string, isZone: boolean): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const project = await stat(projectDir);
  if (project.uid === 0 && !isZone) return;
  const [uid, gid] = project.uid === 0 ? [NOBODY, NOBODY] : [project.uid, project.gid];
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
