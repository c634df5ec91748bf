import { chown, lstat, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../platform/errno.ts";

/* The folders of `corral ci` in the folder where it runs. Cells see single ones of them; what is in the results was chosen by the head. */

/** Of one run: disposing removes what no later run needs. */
export interface CiFolder extends AsyncDisposable {
  /** All absolute. */
  readonly run: string;
  readonly cache: string;
}

interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** Kept entries; of more, the oldest are removed. */
const MAX_KEPT = 40;
/** Git takes nothing of these folders. */
const IGNORE_ALL = "*\n";

/** Below `.corral/ci` of the folder. `owner`: of what is made; null: who makes it. */
export async function makeCiFolder(cwd: string, owner: Owner | null): Promise<CiFolder> {
  const top = join(cwd, ".corral", "ci");
  const cache = join(top, "cache");
  for (const dir of [join(cwd, ".corral"), top, cache]) await ownFolder(dir, owner);
  await writeFile(join(top, ".gitignore"), IGNORE_ALL, { flag: "wx" }).catch(nullFor("EEXIST"));
  const run = await mkdtemp(join(top, "run-"));
  if (owner !== null) await chown(run, owner.uid, owner.gid);
  return {
    run,
    cache,
    async [Symbol.asyncDispose]() {
      await rm(run, { recursive: true, force: true });
      await prune(cache);
    },
  };
}

/** A link in its place would lead elsewhere. */
async function ownFolder(dir: string, owner: Owner | null): Promise<void> {
  const isNew = await mkdir(dir).then(() => true, nullFor("EEXIST"));
  if (!(await lstat(dir)).isDirectory()) throw new Error(`${dir} is not a folder; remove it`);
  if (isNew && owner !== null) await chown(dir, owner.uid, owner.gid);
}

/** The keys of the cache that have an archive. An entry without one is what a run left that was killed. */
export async function keptKeys(cache: string): Promise<ReadonlySet<string>> {
  const kept = new Set<string>();
  for (const key of await readdir(cache))
    for (const name of ["packages.tar", "data.tar"])
      if ((await lstat(join(cache, key, name)).catch(nullFor("ENOENT", "ENOTDIR")))?.isFile()) kept.add(key);
  return kept;
}

async function prune(cache: string): Promise<void> {
  const kept = await keptKeys(cache);
  const entries = await Promise.all(
    [...kept].map(async (key) => ({ key, at: (await lstat(join(cache, key)).catch(() => null))?.mtimeMs ?? 0 })),
  );
  const old = entries.toSorted((a, b) => b.at - a.at).slice(MAX_KEPT);
  for (const { key } of old) await rm(join(cache, key), { recursive: true, force: true });
}

/** Files of Corral's own in a new folder. */
export async function writeCiFiles(dir: string, files: ReadonlyMap<string, Uint8Array | string>): Promise<void> {
  await mkdir(dir, { recursive: true });
  for (const [name, content] of files) await writeFile(join(dir, name), content, { flag: "wx", mode: 0o644 });
}

const MARK = "ci.json";

/**
 * An empty folder for results: a report that is there was written by this run. Results of an earlier one are removed.
 *
 * @throws if something else is there
 */
export async function makeCiResults(dir: string, owner: Owner | null): Promise<void> {
  const names = await readdir(dir).catch(nullFor("ENOENT"));
  if (names !== null && names.length > 0) {
    const mark = await lstat(join(dir, MARK)).catch(nullFor("ENOENT"));
    if (mark === null || !(await lstat(dir)).isDirectory())
      throw new Error("it is not empty, and has no results of an earlier run; name another folder");
    await rm(dir, { recursive: true });
  }
  await mkdir(dir, { recursive: true });
  if (owner !== null) await chown(dir, owner.uid, owner.gid);
  await writeFile(join(dir, MARK), "{}\n", { flag: "wx" });
  await writeFile(join(dir, ".gitignore"), IGNORE_ALL, { flag: "wx" });
}

/** Of Corral's own, beside the folders of the jobs: no cell sees it. */
export async function writeCiResult(dir: string, name: string, text: string): Promise<void> {
  await rm(join(dir, name), { force: true });
  await writeFile(join(dir, name), text, { flag: "wx" });
}
