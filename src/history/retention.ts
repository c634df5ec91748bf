import { lstat, readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { nullFor } from "../platform/errno.ts";
import type { BeginEntry } from "./entry.ts";
import { clearRemoved, projectFolders, type RunFolder, removeRunFolder, runFolders } from "./run-folders.ts";
import { readHead, readRun } from "./run-record.ts";

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
      const sized = { ...folder, bytes: await bytesOf(folder.dir) };
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
  const head: BeginEntry | null = newest === undefined ? null : await readHead(newest.dir);
  return head?.keep ?? DEFAULT_KEEP;
}

function prunedOf({ run, dir, bytes }: Sized, why: string): Pruned {
  return { run, dir, bytes, why };
}

/** A record that has no end, and whose process may be alive. */
async function isOngoing(dir: string, isDead: (owner: string) => boolean): Promise<boolean> {
  return (await readRun(dir, isDead))?.status === "running";
}

/** What the files of a record use on the disk: a few names, none of them a folder. */
export async function bytesOf(dir: string): Promise<number> {
  const names = (await readdir(dir).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  const found = await Promise.all(names.map((name) => lstat(join(dir, basename(name))).catch(nullFor("ENOENT"))));
  return found.reduce((sum, file) => sum + (file?.blocks ?? 0) * 512, 0);
}
