import { lstat, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasCode } from "../../platform/errno.ts";

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
