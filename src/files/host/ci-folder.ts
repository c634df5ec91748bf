import { constants } from "node:fs";
import { chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
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

/** The process that makes folders, and how it recognizes processes that have certainly ended. */
export interface CiMaker {
  /** One line that identifies a process among all that were or will be. */
  readonly name: string;
  readonly isDead: (name: string) => boolean;
}

/** In a folder that goes with its process: the name of that. */
const MAKER = ".maker";
const RUN = "run-";
const RESULTS = "results-";

/** Below `.corral/ci` of the folder. What killed processes left there is removed. `owner`: of what is made; null: who makes it. */
export async function makeCiFolder(cwd: string, owner: Owner | null, maker: CiMaker): Promise<CiFolder> {
  const top = await ciTop(cwd, owner);
  const cache = join(top, "cache");
  await ownFolder(cache, owner);
  await removeLeftOfCi(cwd, maker);
  const run = await mkdtemp(join(top, RUN));
  await markOwn(run, owner, maker);
  return {
    run,
    cache,
    async [Symbol.asyncDispose]() {
      await rm(run, { recursive: true, force: true });
      await prune(cache);
    },
  };
}

/** For results that a process keeps for as long as it runs: the folder, which has no results yet. */
export async function makeKeptResults(cwd: string, id: string, owner: Owner | null, maker: CiMaker): Promise<void> {
  const dir = join(await ciTop(cwd, owner), `${RESULTS}${id}`);
  await mkdir(dir);
  await markOwn(dir, owner, maker);
}

/** Where these results are. No cell sees the folder around them. */
export function keptResults(cwd: string, id: string): string {
  return join(cwd, ".corral", "ci", `${RESULTS}${id}`, "results");
}

export async function removeKeptResults(cwd: string, id: string): Promise<void> {
  await rm(join(cwd, ".corral", "ci", `${RESULTS}${id}`), { recursive: true, force: true });
}

/** The folders of runs and kept results of processes that were killed. One without a mark may be about to have it, so it must be a day old. */
export async function removeLeftOfCi(cwd: string, { isDead }: Pick<CiMaker, "isDead">): Promise<void> {
  const top = join(cwd, ".corral", "ci");
  for (const name of (await readdir(top).catch(nullFor("ENOENT", "ENOTDIR"))) ?? []) {
    if (!name.startsWith(RUN) && !name.startsWith(RESULTS)) continue;
    const maker = await readFile(join(top, name, MAKER), "utf8").catch(nullFor("ENOENT", "ENOTDIR"));
    const isLeft = maker === null ? await isOld(join(top, name)) : isDead(maker.trimEnd());
    if (isLeft) await rm(join(top, name), { recursive: true, force: true });
  }
}

async function ciTop(cwd: string, owner: Owner | null): Promise<string> {
  const top = join(cwd, ".corral", "ci");
  for (const dir of [join(cwd, ".corral"), top]) await ownFolder(dir, owner);
  await writeFile(join(top, ".gitignore"), IGNORE_ALL, { flag: "wx" }).catch(nullFor("EEXIST"));
  return top;
}

async function markOwn(dir: string, owner: Owner | null, { name }: CiMaker): Promise<void> {
  await writeFile(join(dir, MAKER), `${name}\n`, { flag: "wx" });
  if (owner !== null) await chown(dir, owner.uid, owner.gid);
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

async function isOld(path: string): Promise<boolean> {
  const look = await lstat(path).catch(nullFor("ENOENT"));
  return look !== null && Date.now() - look.mtimeMs > MAX_EMPTY_MS;
}

async function prune(cache: string): Promise<void> {
  const kept = await keptKeys(cache);
  for (const key of await readdir(cache)) {
    if (!kept.has(key) && (await isOld(join(cache, key)))) await rm(join(cache, key), { recursive: true, force: true });
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
