import { existsSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { hasCode } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { cgroupPlace } from "../model/layout.ts";

const ROOT = "/sys/fs/cgroup";
/** A process that the kernel is busy with ends late; so many attempts take some ten seconds. */
const MAX_ATTEMPTS = 200;
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
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
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
export async function removeGroups(id: string): Promise<void> {
  let left = groupsOf(id).toReversed();
  for (let attempt = 0; ; attempt += 1) {
    left = left.filter((group) => !removed(group));
    if (left.length === 0) return;
    if (attempt === MAX_ATTEMPTS) throw new EngineTrouble(`the control group ${left[0]} of a cell cannot be removed`);
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
