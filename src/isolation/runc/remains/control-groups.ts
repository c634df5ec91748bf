import { existsSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { hasCode } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { cgroupPlaces } from "../model/layout.ts";

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
  const hierarchies = isUnified() ? [ROOT] : readdirSync(ROOT).map((name) => join(ROOT, name));
  const groups = hierarchies.flatMap((hierarchy) => cgroupPlaces(id).map((place) => join(hierarchy, place)));
  return groups.filter((group) => existsSync(group));
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

/** Removes the groups, which have no processes any more. Rejects with `EngineTrouble` if one stays. */
export async function removeGroups(id: string): Promise<void> {
  for (const group of groupsOf(id).toReversed()) {
    for (let attempt = 0; !removed(group); attempt += 1) {
      if (attempt === MAX_ATTEMPTS) throw new EngineTrouble(`the control group ${group} of a cell cannot be removed`);
      await pause(Math.min(attempt, LAST_PAUSE_MS));
    }
  }
}

/** False while the kernel still counts a process in it. */
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
