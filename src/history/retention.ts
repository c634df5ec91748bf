import { appendFile, lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { makeClosedDir } from "../state/state-dir.ts";
import {
  type BeginEntry,
  clearRemoved,
  projectFolders,
  type RunFolder,
  removeRunFolder,
  runFolders,
} from "./recording.ts";
import { readBegin, readRun } from "./run-record.ts";

/** One line with the time of the last pruning and the bytes that it left; then a line with the bytes of each run since. */
const TOTAL_FILE = "total";
const MAX_TOTAL_FILE_BYTES = 64 * 1024;
const EVERY_MS = 6 * 3_600_000;
/** A process that lives long looks again after any of these: runs that it began, bytes that they printed, and time. */
const LOOK_AGAIN = { runs: 100, bytes: 64 * 1024 ** 2, ms: 3_600_000 };
/** So many more than a project keeps are tolerated, so that not each run prunes. */
const TOLERANCE = 1.1;
/** Records that one run removes beside its own work. */
const MAX_REMOVED = 500;
/** A record without output. */
const LEAST_BYTES = 4096;

export interface PruningOptions {
  readonly runsDir: string;
  readonly keep: Keep;
  readonly maxBytes: number;
  readonly isDead: (owner: string) => boolean;
}

/** Keeps the history within its bounds, beside runs. What fails here is done by a later run. */
export class Pruning {
  readonly #options: PruningOptions;
  #working: Promise<void> = Promise.resolve();
  /** Since it looked last; null: it never has. */
  #since: { runs: number; bytes: number; readonly atMs: number } | null = null;

  constructor(options: PruningOptions) {
    this.#options = options;
  }

  /** A run begins. Prunes if it is time. `projectRuns`: the records of the project that runs something. */
  begin(projectRuns: string): void {
    const since = this.#since;
    if (since !== null) {
      since.runs += 1;
      const { runs, bytes, ms } = LOOK_AGAIN;
      // A clock that was set back is no reason to wait.
      if (since.runs < runs && since.bytes < bytes && Math.abs(Date.now() - since.atMs) < ms) return;
    }
    this.#since = { runs: 0, bytes: 0, atMs: Date.now() };
    this.#work(async () => {
      if (await this.#isDue(projectRuns)) await pruneNow(this.#options, MAX_REMOVED);
    });
  }

  /** So many bytes were added. */
  added(bytes: number): void {
    if (this.#since !== null) this.#since.bytes += LEAST_BYTES + bytes;
    this.#work(() => appendFile(join(this.#options.runsDir, TOTAL_FILE), `${LEAST_BYTES + bytes}\n`, { mode: 0o600 }));
  }

  async idle(): Promise<void> {
    await this.#working;
  }

  #work(act: () => Promise<unknown>): void {
    this.#working = this.#working.then(act).then(
      () => {},
      () => {},
    );
  }

  async #isDue(projectRuns: string): Promise<boolean> {
    const { runsDir, keep, maxBytes } = this.#options;
    const known = await readFile(join(runsDir, TOTAL_FILE), "utf8").catch(nullFor("ENOENT"));
    if (known === null || known.length > MAX_TOTAL_FILE_BYTES) return true;
    const [first = "", ...added] = known.split("\n");
    const [prunedMs = 0, bytes = 0] = first.split(" ").map(Number);
    const age = Date.now() - prunedMs;
    const total = added.reduce((sum, line) => sum + (Number(line) || 0), bytes);
    if (!(age >= 0 && age < EVERY_MS && total <= maxBytes)) return true;
    const names = (await readdir(projectRuns).catch(nullFor("ENOENT"))) ?? [];
    return names.length > keep.runs * TOLERANCE;
  }
}

async function pruneNow({ runsDir, maxBytes, isDead }: PruningOptions, limit: number): Promise<void> {
  const nowMs = Date.now();
  const { bytes } = await prune(runsDir, { maxBytes, isDead, nowMs, limit });
  await makeClosedDir(runsDir);
  await writeAtomically(join(runsDir, TOTAL_FILE), `${nowMs} ${bytes}\n`);
}

/** What a project keeps. */
export interface Keep {
  readonly days: number;
  readonly runs: number;
}

export const DEFAULT_KEEP: Keep = { days: 30, runs: 1000 };
/** Of all projects together: 1 GiB. */
export const DEFAULT_MAX_BYTES = 1024 ** 3;

const DAY_MS = 86_400_000;

export interface PruneOptions {
  readonly maxBytes: number;
  /** In place of each project's own age. */
  readonly olderThanMs?: number;
  readonly nowMs: number;
  /** Nothing is removed. */
  readonly dryRun?: boolean;
  /** The most records that are removed; the others wait for the next time. */
  readonly limit?: number;
  readonly isDead: (owner: string) => boolean;
}

/** A record that is removed, or would be. */
export interface Pruned {
  readonly run: string;
  readonly dir: string;
  readonly bytes: number;
  readonly why: string;
}

interface Sized extends RunFolder {
  readonly bytes: number;
}

/**
 * Removes the records that are too old, too many for their project, or too much for all projects together, the oldest first. A
 * run that is not over is never removed. The retention of a project is that of its newest run. Answers with the bytes that stay.
 */
export async function prune(
  runsDir: string,
  options: PruneOptions,
): Promise<{ readonly removed: readonly Pruned[]; readonly bytes: number }> {
  const { maxBytes, olderThanMs, nowMs, dryRun = false, limit = Number.POSITIVE_INFINITY } = options;
  const chosen: Pruned[] = [];
  const kept: Sized[] = [];
  for (const project of await projectFolders(runsDir)) {
    if (!dryRun) await clearRemoved(project);
    const folders = await runFolders(project);
    const keep = await keepOf(folders);
    const oldestMs = nowMs - (olderThanMs ?? keep.days * DAY_MS);
    const age = olderThanMs === undefined ? `older than ${keep.days} days` : "older than --older-than";
    for (const [index, folder] of folders.entries()) {
      const sized = { ...folder, bytes: await recordBytes(folder.dir) };
      const why =
        index >= keep.runs ? `more than ${keep.runs} runs of its project` : folder.beganMs < oldestMs ? age : null;
      if (why === null) kept.push(sized);
      else chosen.push(prunedOf(sized, why));
    }
  }
  let total = kept.reduce((sum, { bytes }) => sum + bytes, 0);
  for (const folder of kept.toSorted((a, b) => a.beganMs - b.beganMs)) {
    if (total <= maxBytes) break;
    total -= folder.bytes;
    chosen.push(prunedOf(folder, `more than ${maxBytes} bytes in all projects`));
  }
  const removed: Pruned[] = [];
  for (const one of chosen) {
    const stays = removed.length >= limit || (await isOngoing(one.dir, options.isDead));
    if (stays) total += one.bytes;
    else if (dryRun || (await removeRunFolder(one.dir))) removed.push(one);
  }
  return { removed, bytes: total };
}

async function keepOf([newest]: readonly RunFolder[]): Promise<Keep> {
  const head: BeginEntry | null = newest === undefined ? null : await readBegin(newest.dir);
  return head?.keep ?? DEFAULT_KEEP;
}

function prunedOf({ run, dir, bytes }: Sized, why: string): Pruned {
  return { run, dir, bytes, why };
}

/** A record that has no end, and whose process may be alive. */
async function isOngoing(dir: string, isDead: (owner: string) => boolean): Promise<boolean> {
  return (await readRun(dir, isDead))?.status === "running";
}

/** What the files of a record use on the disk. */
export async function recordBytes(dir: string): Promise<number> {
  const names = (await readdir(dir, { recursive: true }).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  const found = await Promise.all(names.map((name) => lstat(join(dir, name)).catch(nullFor("ENOENT"))));
  return found.reduce((sum, file) => sum + (file?.blocks ?? 0) * 512, 0);
}
