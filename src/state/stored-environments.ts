import { mkdir, readdir, readFile, rename, stat, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { z } from "zod";
import { removeTree } from "../files/host/remove-tree.ts";
import { hasCode } from "../platform/errno.ts";
import { holdFile, isHeld } from "./file-lock.ts";
import { livingOwnerDirs } from "./live-dir.ts";
import { currentOwner, lockOwner, parseOwner } from "./owner.ts";
import { statePaths } from "./state-paths.ts";

/** Packages that were prepared once for cells. Everything that they depend on is in the digest. */
export interface StoredEnvironment {
  readonly digest: string;
  readonly kind: "pip" | "npm";
  /** For people: `pip:requirements.txt`. */
  readonly name: string;
  /** The mark of the project that had it prepared. Others with the same contents use it too. */
  readonly project: string;
  readonly sizeBytes: number;
  readonly entries: number;
  /** Milliseconds since 1970, of the last process that used it. */
  readonly usedAt: number;
  /** The directory that cells are shown. */
  readonly tree: string;
}

const Record = z.object({
  kind: z.enum(["pip", "npm"]),
  name: z.string(),
  project: z.string(),
  sizeBytes: z.number(),
  entries: z.number(),
});
export type EnvironmentRecord = z.infer<typeof Record>;

const DIGEST = /^[0-9a-f]{64}$/;
/** What is being prepared, or was when its process died. */
const UNFINISHED = ".new";
const RECORD = "record.json";
const TREE = "tree";
/** In an owner's directory: an empty file for each environment that the process uses. */
const USED_DIR = "environments";
/** Longer than a preparation may take. */
const MAX_WAIT_MS = 60 * 60_000;
const POLL_MS = 200;

/** All of them, the least recently used first. */
export async function storedEnvironments(stateDir: string): Promise<StoredEnvironment[]> {
  const { environments } = statePaths(stateDir);
  const names = await readdir(environments).catch((): string[] => []);
  const found = await Promise.all(names.filter((name) => DIGEST.test(name)).map((name) => find(environments, name)));
  return found.filter((one) => one !== null).sort((a, b) => a.usedAt - b.usedAt);
}

/**
 * The one with this digest, marked as used by the process of `ownerDir` until its end, so that it is not removed; null if there
 * is none. `ownerDir` null: only looks.
 */
export async function findEnvironment(
  stateDir: string,
  digest: string,
  ownerDir: string | null,
): Promise<StoredEnvironment | null> {
  const { environments } = statePaths(stateDir);
  if (ownerDir !== null) {
    await mkdir(join(ownerDir, USED_DIR), { recursive: true, mode: 0o700 });
    await writeFile(join(ownerDir, USED_DIR, digest), "", { mode: 0o600 });
  }
  const found = await find(environments, digest);
  if (found !== null && ownerDir !== null) await utimes(join(environments, digest, RECORD), new Date(), new Date());
  return found;
}

async function find(environments: string, digest: string): Promise<StoredEnvironment | null> {
  const dir = join(environments, digest);
  try {
    const file = join(dir, RECORD);
    const record = Record.parse(JSON.parse(await readFile(file, "utf8")));
    return { digest, ...record, usedAt: (await stat(file)).mtimeMs, tree: join(dir, TREE) };
  } catch (error) {
    // One that cannot be read is prepared again.
    if (hasCode(error, "ENOENT") || error instanceof SyntaxError || error instanceof z.ZodError) return null;
    throw error;
  }
}

export interface PreparationLock {
  readonly signal: AbortSignal;
  /** Called once, with its pid, if another process prepares the same. */
  readonly onWait: (pid: number) => void;
}

/**
 * Prepares one, unless another process did meanwhile: `fill` fills the empty directory that it is given and returns its record.
 * If it fails, nothing is left. Processes that want the same take turns.
 */
export async function prepareEnvironment(
  stateDir: string,
  digest: string,
  { signal, onWait }: PreparationLock,
  fill: (tree: string) => Promise<EnvironmentRecord>,
): Promise<void> {
  const { environments } = statePaths(stateDir);
  await mkdir(environments, { recursive: true, mode: 0o700 });
  await using _lock = await holdFile(join(environments, `${digest}.lock`), lockOwner(), {
    waitMs: MAX_WAIT_MS,
    longestPauseMs: POLL_MS,
    signal,
    onWait: (name) => onWait(parseOwner(name)?.pid ?? 0),
  });
  if ((await find(environments, digest)) !== null) return;
  const unfinished = join(environments, `${digest}${UNFINISHED}`);
  await removeTree(unfinished);
  await removeTree(join(environments, digest));
  try {
    await mkdir(join(unfinished, TREE), { recursive: true, mode: 0o700 });
    const record = await fill(join(unfinished, TREE));
    await writeFile(join(unfinished, RECORD), `${JSON.stringify(record)}\n`, { mode: 0o600 });
    await rename(unfinished, join(environments, digest));
  } finally {
    await removeTree(unfinished);
  }
}

/** False if a living process uses it, or is preparing it. What does not exist is removed already. */
export async function removeEnvironment(stateDir: string, digest: string): Promise<boolean> {
  const { environments, live } = statePaths(stateDir);
  const lock = join(environments, `${digest}.lock`);
  if (!DIGEST.test(digest) || (await isHeld(lock, lockOwner()))) return false;
  await using _lock = await holdFile(lock, lockOwner(), { waitMs: 0, longestPauseMs: 0 });
  if ((await usedDigests(live)).has(digest)) return false;
  const gone = join(environments, `${digest}${UNFINISHED}`);
  await removeTree(gone);
  // Removed under another name: a process that looks for it finds it whole or not at all.
  await rename(join(environments, digest), gone).catch((error: unknown) => {
    if (!hasCode(error, "ENOENT")) throw error;
  });
  await removeTree(gone);
  return true;
}

/** Directories of preparations whose process died; removes them. Returns their number. */
export async function removeUnfinished(stateDir: string): Promise<number> {
  const { environments } = statePaths(stateDir);
  let removed = 0;
  for (const name of await readdir(environments).catch((): string[] => [])) {
    const digest = basename(name, UNFINISHED);
    if (!name.endsWith(UNFINISHED) || !DIGEST.test(digest)) continue;
    if (await isHeld(join(environments, `${digest}.lock`), lockOwner())) continue;
    await removeTree(join(environments, name));
    removed += 1;
  }
  return removed;
}

async function usedDigests(live: string): Promise<ReadonlySet<string>> {
  const owners = await livingOwnerDirs(live, currentOwner());
  const used = await Promise.all(owners.map((dir) => readdir(join(dir, USED_DIR)).catch((): string[] => [])));
  return new Set(used.flat());
}
