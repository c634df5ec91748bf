import fs, { existsSync, readdirSync, readFileSync, readlinkSync, rmdirSync, statSync, writeFileSync } from "node:fs";
import { readdir, rm, rmdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { removeTree } from "../../../files/host/system-program.ts";
import { hasCode } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { cellPaths, cgroupPlace, type RuncPaths } from "../model/layout.ts";

const MAX_ATTEMPTS = 500;
const PAUSE_MS = 5;

/**
 * Ends the programs that make a cell, or wait for its end, after the process that started them has ended: one that has read its
 * configuration would still make control groups and notes of a cell whose directory is gone. Each has the directory of the
 * cell as its working directory, which no process in a cell ever sees; runc itself, which enters its bundle, has the cell's name as
 * its last word. A program of the user may have one of these too, so only those that Corral starts are ended. Rejects with
 * `EngineTrouble` if some do not end.
 */
export async function endStarters(dir: string, { id, isLauncher = false }: Starters = {}): Promise<void> {
  const cell = identityOf(dir);
  const isThere = (pid: string): boolean => cell !== null && identityOf(`/proc/${pid}/cwd`) === cell;
  // Of a launcher, whose shells mount the memory of its places from within.
  const sessions = new Set<string>();
  const isStarter = (pid: string): boolean => {
    const words = wordsOf(pid);
    if (isThere(pid) && (OURS.test(programOf(pid)) || AS_STARTED.test(words) || isForked(pid))) {
      if (isLauncher) sessions.add(sessionOf(pid) || pid);
      return true;
    }
    if (sessions.size > 0 && sessions.has(sessionOf(pid)) && OURS.test(programOf(pid))) return true;
    return id !== undefined && words.endsWith(`\0${id}\0`) && AS_STARTED.test(words) && RUNTIME.test(programOf(pid));
  };
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const starters = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && isStarter(pid));
    if (starters.length === 0) return;
    for (const pid of starters) kill(Number(pid));
    await pause(PAUSE_MS);
  }
  throw new EngineTrouble("a program that makes a cell cannot be ended");
}

interface Starters {
  /** {@link cellId}, the last word of a runc that makes this cell. */
  readonly id?: string;
  /** If the directory is of a launcher, all that it has begun is ended with it. */
  readonly isLauncher?: boolean;
}

/** The program of a process, as the kernel names it: ` (deleted)` follows if it was replaced since. */
const RUNTIME = /(?:runc|crun)[^/]*$/;
/** A runtime, the gate's binary, and what `asByTheEngine` starts before them. */
const OURS = /(?:runc|crun)[^/]*$|\/gate\/[0-9a-f]{64}\/(?:closed\/)?busybox( \(deleted\))?$|\/(chrt|nice)$/;
/** Words in the middle of the command line of each runtime that this driver starts. Users do not ask for such a log. */
const AS_STARTED = /\0--log-format\0json\0(run|exec)\0/;

/**
 * True of a child that Node has forked and that has not executed its program yet: it outlives its parent, and would begin it after
 * all. It leads a session already, which no Node does that a user started there.
 */
function isForked(pid: string): boolean {
  return programOf(pid) === process.execPath && sessionOf(pid) === pid;
}

/** Empty if the process is gone. */
function sessionOf(pid: string): string {
  const stat = nothingIfGone(() => readFileSync(`/proc/${pid}/stat`, "latin1")) ?? "";
  const [, , , session = ""] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return session;
}

/** The command line, each word with its end; empty if the process is gone. */
function wordsOf(pid: string): string {
  return nothingIfGone(() => readFileSync(`/proc/${pid}/cmdline`, "latin1")) ?? "";
}

/** Empty if it is gone, or is one of the kernel's own. */
function programOf(pid: string): string {
  return nothingIfGone(() => readlinkSync(`/proc/${pid}/exe`)) ?? "";
}

function identityOf(path: string): string | null {
  return nothingIfGone(() => {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev}:${ino}`;
  });
}

function nothingIfGone<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return null;
    throw error;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}

/**
 * Ends a cell and removes everything of it, in any state, also one that is half made or half removed: processes, control
 * groups, the runtime's notes, and last its directory. Its root file system is mounted in namespaces that end with their processes.
 * Rejects with `EngineTrouble` if something cannot be removed; then the labels are still there.
 *
 * @param dir the directory of the cell.
 * @param hasEnded true if its runc has ended, so that nothing makes processes of it any more.
 */
export async function removeCell(paths: RuncPaths, id: string, dir: string, hasEnded = false): Promise<void> {
  if (!hasEnded) await killCell(id);
  await removeGroups(id);
  const state = join(paths.state, id);
  const { labels } = cellPaths(dir);
  if (!removedAtOnce(state, NOTES)) await rm(state, { recursive: true, force: true });
  if (removedAtOnce(dir, [basename(labels)])) return;
  const names = await readdir(dir).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  });
  const others = names.map((name) => join(dir, name)).filter((path) => path !== labels);
  // A cell of an earlier version could write over its image, a tree that is deeper than a path can be long.
  await Promise.all(others.map(removeTree));
  await rm(labels, { force: true });
  await rmdir(dir).catch((error: unknown) => {
    if (!hasCode(error, "ENOENT")) throw error;
  });
}

/** What runc keeps of a cell, and then what crun keeps. */
const NOTES = ["state.json", "status", "config.json", "seccomp.bpf"];

/** Most cells leave nothing but such files: to remove them takes microseconds, and a turn of a thread for each takes longer. False if more is left. */
function removedAtOnce(dir: string, known: readonly string[]): boolean {
  try {
    const names = fs.readdirSync(dir);
    if (!names.every((name) => known.includes(name))) return false;
    for (const name of names) fs.rmSync(join(dir, name), { force: true });
    fs.rmdirSync(dir);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    if (hasCode(error, "ENOTEMPTY", "EISDIR", "ERR_FS_EISDIR")) return false;
    throw error;
  }
}

const ROOT = "/sys/fs/cgroup";
/** A process that the kernel is busy with ends late; so many attempts take some ten seconds. */
const MAX_REMOVALS = 200;
const LAST_PAUSE_MS = 60;

/** True if this machine has version 2 of control groups alone. */
export function isUnified(): boolean {
  return existsSync(join(ROOT, "cgroup.controllers"));
}

/** Every control group of a cell, in all hierarchies. */
function groupsOf(id: string): string[] {
  return hierarchies()
    .map((hierarchy) => join(hierarchy, cgroupPlace(id)))
    .filter((group) => existsSync(group));
}

/** Some machines have the same hierarchy under more names, as links. */
function hierarchies(): string[] {
  if (isUnified()) return [ROOT];
  const entries = readdirSync(ROOT, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(ROOT, name));
}

/** Ends every process of a cell and waits until none is left. Rejects with `EngineTrouble` if some are. */
export async function killCell(id: string): Promise<void> {
  for (let attempt = 0; attempt < MAX_REMOVALS; attempt += 1) {
    const left = new Set(groupsOf(id).flatMap(killGroup));
    if (left.size === 0) return;
    await pause(Math.min(attempt, LAST_PAUSE_MS));
  }
  throw new EngineTrouble("some processes of a cell cannot be ended");
}

/** Kills the processes of a group; returns those that were in it. */
function killGroup(group: string): string[] {
  // Version 2.
  write(join(group, "cgroup.kill"), "1");
  const pids = read(join(group, "cgroup.procs")).split("\n").filter(Boolean);
  // Frozen processes neither fork nor end, so each number that is read is still that of the process when it is killed.
  if (!write(join(group, "freezer.state"), "FROZEN")) return pids;
  for (const pid of read(join(group, "cgroup.procs")).split("\n").filter(Boolean)) {
    try {
      process.kill(Number(pid), "SIGKILL");
    } catch (error) {
      if (!hasCode(error, "ESRCH")) throw error;
    }
  }
  write(join(group, "freezer.state"), "THAWED");
  return pids;
}

/**
 * Removes the groups, and ends what is left in them: the kernel removes no group that has a process. So of a cell that has ended
 * nothing needs to be read before. Rejects with `EngineTrouble` if one stays.
 */
async function removeGroups(id: string): Promise<void> {
  let left = groupsOf(id).toReversed();
  for (let attempt = 0; ; attempt += 1) {
    left = left.filter((group) => !removed(group));
    if (left.length === 0) return;
    if (attempt === MAX_REMOVALS) throw new EngineTrouble(`the control group ${left[0]} of a cell cannot be removed`);
    await killCell(id);
    await pause(Math.min(attempt, LAST_PAUSE_MS));
  }
}

/** False while a process is in it. */
function removed(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    if (hasCode(error, "EBUSY")) return false;
    throw error;
  }
}

/** False if the kernel does not have this file. */
function write(file: string, text: string): boolean {
  try {
    writeFileSync(file, text, { flag: "r+" });
    return true;
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENODEV")) throw error;
    return false;
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENODEV")) return "";
    throw error;
  }
}
