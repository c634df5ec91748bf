import fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { hasCode } from "../../platform/errno.ts";
import { type ControlGroup, groupIn, HIERARCHIES, type Hierarchy, kernelText } from "../kernel/control-group.ts";
import type { Plan, PlannedUser } from "../plan/plan.ts";
import { EngineTrouble } from "../port/driver.ts";

/** The group that Corral runs in, if its user may make others in it: one directory for each hierarchy of version 1, or the same one for all. */
export interface Delegated {
  readonly parents: Readonly<Record<Hierarchy, string>>;
  readonly version: 1 | 2;
}

/** Where a group is looked for, and which this process is in. */
export interface GroupPlaces {
  readonly root: string;
  /** What `/proc/self/cgroup` has. */
  readonly own: string;
  readonly pid: number;
}

const HERE = { root: "/sys/fs/cgroup", pid: process.pid };
/** The kernel limits nothing in a group of version 2 that has processes itself, so Corral's own process goes into one inside. */
const LEAF = "corral-itself";
const NEEDED = ["cpu", "memory", "pids"] as const;
/** The kernel's own default. */
const CPU_PERIOD_US = 100_000;
/** bubblewrap's own, beside those of the cell, which its user namespace counts. */
const OUTER_PROCESSES = 4;

/** `why`: in words for people, what is missing. `looksOnly`: changes nothing. */
export function delegatedGroups(
  looksOnly: boolean,
  { root, own, pid }: GroupPlaces = { ...HERE, own: kernelText("/proc/self/cgroup") ?? "" },
): Delegated | { readonly why: string } {
  const places = placesIn(own);
  if (fs.existsSync(join(root, "cgroup.controllers"))) {
    const place = join(root, places.get("") ?? "/");
    return unified(basename(place) === LEAF ? dirname(place) : place, looksOnly, pid);
  }
  const parents = Object.fromEntries(HIERARCHIES.map((name) => [name, join(root, name, places.get(name) ?? "/")]));
  const closed = Object.values(parents).find((dir) => !isWritable(dir));
  return closed === undefined
    ? { parents: parents as Delegated["parents"], version: 1 }
    : { why: `this user may make no control group in ${closed}` };
}

function unified(dir: string, looksOnly: boolean, pid: number): ReturnType<typeof delegatedGroups> {
  const closed = [dir, join(dir, "cgroup.procs"), join(dir, "cgroup.subtree_control")].find(
    (path) => !isWritable(path),
  );
  if (closed !== undefined) return { why: `this user may not write ${closed}. ${HOW}` };
  const words = (name: string): string[] => kernelText(join(dir, name))?.trim().split(/\s+/) ?? [];
  const absent = NEEDED.filter((name) => !words("cgroup.controllers").includes(name));
  if (absent.length > 0) return { why: `the control group ${dir} has no ${absent.join(", ")}. ${HOW}` };
  const isGiven = (): boolean => NEEDED.every((name) => words("cgroup.subtree_control").includes(name));
  if (!isGiven() && !looksOnly) {
    try {
      fs.mkdirSync(join(dir, LEAF), { recursive: true });
      fs.writeFileSync(join(dir, LEAF, "cgroup.procs"), String(pid));
      fs.writeFileSync(join(dir, "cgroup.subtree_control"), NEEDED.map((name) => `+${name}`).join(" "));
    } catch (error) {
      if (!hasCode(error, "EBUSY", "EACCES", "EPERM", "ENOENT")) throw error;
    }
    if (!isGiven()) return { why: `other processes are in the control group ${dir} too. ${HOW}` };
  }
  return { parents: Object.fromEntries(HIERARCHIES.map((name) => [name, dir])) as Delegated["parents"], version: 2 };
}

const HOW = "With systemd, start it as: systemd-run --user --scope -p Delegate=yes corral …";

/** The places in each hierarchy, by its name; that of version 2 has none. */
function placesIn(own: string): ReadonlyMap<string, string> {
  return new Map(
    own.split("\n").flatMap((line) => {
      const [, names = "", place = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
      return place === "" ? [] : names.split(",").map((name): [string, string] => [name, place]);
    }),
  );
}

function isWritable(path: string): boolean {
  try {
    fs.accessSync(path, fs.constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** The control group of one cell, with its limits. */
export interface CellGroup extends ControlGroup {
  /** Where a process comes into it. */
  readonly entries: readonly string[];
  /** Whether a process of this machine is in it, in every hierarchy. */
  has(pid: number): boolean;
}

/** `folder`: of the cell, where a note says what is to be removed, before there is anything. */
export function makeGroup(
  { parents, version }: Delegated,
  { id, dir: folder }: { readonly id: string; readonly dir: string },
  { limits }: Plan,
  user: PlannedUser,
): CellGroup {
  const dirs = Object.fromEntries(HIERARCHIES.map((name) => [name, join(parents[name], id)])) as Record<
    Hierarchy,
    string
  >;
  const all = [...new Set(Object.values(dirs))];
  fs.writeFileSync(join(folder, NOTE), all.join("\n"), { mode: 0o600 });
  for (const dir of all) fs.mkdirSync(dir, { recursive: true });
  const memory = String(limits.memoryBytes);
  const quota = String(Math.round(limits.cpus * CPU_PERIOD_US));
  const pids = String(limits.pids + OUTER_PROCESSES);
  const values: [string, string][] =
    version === 2
      ? [
          [join(dirs.memory, "memory.max"), memory],
          [join(dirs.memory, "memory.swap.max"), "0"],
          [join(dirs.cpu, "cpu.max"), `${quota} ${CPU_PERIOD_US}`],
          [join(dirs.pids, "pids.max"), pids],
        ]
      : [
          [join(dirs.memory, "memory.limit_in_bytes"), memory],
          [join(dirs.memory, "memory.memsw.limit_in_bytes"), memory],
          [join(dirs.cpu, "cpu.cfs_period_us"), String(CPU_PERIOD_US)],
          [join(dirs.cpu, "cpu.cfs_quota_us"), quota],
          [join(dirs.pids, "pids.max"), pids],
        ];
  // A kernel without an account of swap has no file for it. What is missing is seen by the verification.
  for (const [file, value] of values) if (fs.existsSync(file)) fs.writeFileSync(file, value);
  const entries = all.map((dir) => join(dir, "cgroup.procs"));
  if (user.uid !== process.getuid?.()) for (const file of entries) fs.chownSync(file, user.uid, user.gid);
  const group = groupIn((name) => dirs[name], version);
  return { ...group, entries, has: (pid) => entries.every((file) => numbersIn(file).includes(pid)) };
}

function numbersIn(file: string): number[] {
  return (kernelText(file) ?? "").split("\n").flatMap((line) => (line === "" ? [] : [Number(line)]));
}

const NOTE = "groups";
const MAX_LOOKS = 500;
const PAUSE_MS = 5;

/** What the note of a cell's folder names. Its processes have been ended. Rejects with `EngineTrouble` if some have not. */
export async function removeGroups(folder: string): Promise<void> {
  let left = (kernelText(join(folder, NOTE)) ?? "").split("\n").filter((dir) => dir !== "");
  for (let looks = 0; ; looks += 1) {
    left = left.filter((dir) => !isRemoved(dir));
    if (left.length === 0) return;
    if (looks === MAX_LOOKS) throw new EngineTrouble(`the control group ${left[0]} of a cell cannot be removed`);
    await pause(PAUSE_MS);
  }
}

/** False while a process is in it. */
function isRemoved(dir: string): boolean {
  try {
    fs.rmdirSync(dir);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    if (hasCode(error, "EBUSY")) return false;
    throw error;
  }
}
