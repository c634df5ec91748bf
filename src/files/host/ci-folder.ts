import { constants } from "node:fs";
import { chown, lstat, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import { openRegular } from "../../platform/write-file.ts";

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

/** The staged folder of a run that was killed has no archive. Another run may be about to fill such a folder, so it must be a day old. */
const MAX_EMPTY_MS = 24 * 60 * 60_000;

async function prune(cache: string): Promise<void> {
  const kept = await keptKeys(cache);
  for (const key of await readdir(cache)) {
    const look = kept.has(key) ? null : await lstat(join(cache, key)).catch(nullFor("ENOENT"));
    if (look !== null && Date.now() - look.mtimeMs > MAX_EMPTY_MS)
      await rm(join(cache, key), { recursive: true, force: true });
  }
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

/** All that {@link makeCiResults} made. */
export async function removeCiResults(dir: string): Promise<void> {
  await rm(dir, { recursive: true, force: true });
}

/** Of Corral's own, beside the folders of the jobs: no cell sees it. */
export async function writeCiResult(dir: string, name: string, text: string): Promise<void> {
  await rm(join(dir, name), { force: true });
  await writeFile(join(dir, name), text, { flag: "wx" });
}

/** A file that a cell left in its results. */
export interface FoundReport {
  /** Below the folder of the reports, with `/`. */
  readonly path: string;
  /** Null: too much, it was not read. */
  readonly text: string | null;
}

const MAX_REPORTS = 200;
const MAX_REPORT_BYTES = 8 * 1024 * 1024;
/** Of all reports of a part together. */
const MAX_ALL_BYTES = 32 * 1024 * 1024;
const MAX_REPORT_DEPTH = 20;

/** The regular files below a folder that a cell filled, in the order of their names. Links are not followed. */
export async function foundReports(dir: string): Promise<readonly FoundReport[]> {
  const found: FoundReport[] = [];
  let left = MAX_ALL_BYTES;
  const visit = async (below: string, depth: number): Promise<void> => {
    const entries = (await readdir(join(dir, below), { withFileTypes: true }).catch(nullFor("ENOENT"))) ?? [];
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = below === "" ? entry.name : `${below}/${entry.name}`;
      if (entry.isDirectory() && depth < MAX_REPORT_DEPTH) await visit(path, depth + 1);
      if (!entry.isFile() || found.length > MAX_REPORTS) continue;
      await using file = await openRegular(join(dir, path), constants.O_RDONLY);
      const { size } = await file.stat();
      const isTooMuch = size > Math.min(left, MAX_REPORT_BYTES) || found.length === MAX_REPORTS;
      if (!isTooMuch) left -= size;
      found.push({ path, text: isTooMuch ? null : await file.readFile("utf8") });
    }
  };
  await visit("", 0);
  return found;
}
