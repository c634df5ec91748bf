import { readFileSync } from "node:fs";
import { readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { decodedMountField } from "../../../files/host/kernel-mounts.ts";
import { hasCode, nullFor } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { cgroupPlaces } from "../model/layout.ts";

/** How long processes may take to end that were all killed. The kernel may have to write much of their memory first. */
const MAX_ROUNDS = 400;
const LONGEST_PAUSE_MS = 50;

/** Kills every process of a cell, whatever it has started, and removes its control groups. No error if there are none. */
export async function endControlGroups(id: string): Promise<void> {
  for (let round = 1; ; round += 1) {
    const left: string[] = [];
    // A runtime that is still making the cell may add some.
    for (const group of await groupsOf(id)) if (!(await removedGroup(group))) left.push(group);
    if (left.length === 0) return;
    if (round === MAX_ROUNDS)
      throw new EngineTrouble(`processes of the cell ${id} did not end, although they were killed`);
    for (const group of left) await killGroup(group, round > FROZEN_ROUNDS);
    await pause(Math.min(round, LONGEST_PAUSE_MS));
  }
}

/** Its directory in each hierarchy that the machine has, in whichever place it was made. */
async function groupsOf(id: string): Promise<string[]> {
  const all = hierarchies().flatMap((root) => cgroupPlaces(id).map((place) => join(root, place)));
  const found = await Promise.all(all.map((dir) => readdir(dir).then(() => true, nullFor("ENOENT", "ENOTDIR"))));
  return all.filter((_, index) => found[index]);
}

/** Where the kernel's control groups are mounted: one place for version 2, one for each controller of version 1. */
function hierarchies(): string[] {
  const lines = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const mounted = lines.filter((line) => / - cgroup2? /.test(line) && line.split(" ")[3] === "/");
  return [...new Set(mounted.map((line) => decodedMountField(line.split(" ")[4] ?? "")))];
}

/** False if processes are left in it. A cell cannot make groups of its own below it. */
async function removedGroup(group: string): Promise<boolean> {
  try {
    await rmdir(group);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    if (hasCode(error, "EBUSY", "ENOTEMPTY")) return false;
    throw error;
  }
}

/** A group that has no freezer, or not yet, is killed as it is after so many. */
const FROZEN_ROUNDS = 10;

/** Frozen processes neither fork nor end, so each number that is read is still that of the process when it is killed. */
async function killGroup(group: string, asItIs: boolean): Promise<void> {
  if (await written(join(group, "cgroup.kill"), "1")) return;
  const frozen =
    (await written(join(group, "freezer.state"), "FROZEN")) || (await written(join(group, "cgroup.freeze"), "1"));
  const processes = (await readFile(join(group, "cgroup.procs"), "utf8").catch(nullFor("ENOENT", "ENODEV"))) ?? "";
  // Without a freezer in this hierarchy, that of another one ends the processes.
  if (!frozen && !asItIs) return;
  for (const pid of processes.split("\n")) if (/^[1-9]\d*$/.test(pid)) kill(Number(pid));
  await written(join(group, "freezer.state"), "THAWED");
  await written(join(group, "cgroup.freeze"), "0");
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}

/** False if the kernel does not have this file. */
async function written(file: string, text: string): Promise<boolean> {
  return (await writeFile(file, text, { flag: "r+" }).then(() => true, nullFor("ENOENT", "ENODEV"))) ?? false;
}
