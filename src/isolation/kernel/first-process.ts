import { readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type ControlGroup, kernelText } from "./control-group.ts";

const GROUPS = "/sys/fs/cgroup";
/** The last part is `ID`, or with systemd's names `docker-ID.scope`. */
const GROUP_OF_CONTAINER = /(?:\/|-)([0-9a-f]{64})(?:\.scope)?$/;
/** A killed process ends within milliseconds, unless the kernel is busy with it. */
const MAX_LOOKS = 20;
const PAUSE_MS = 50;

/** A container's whole id; its name, and a short id, say nothing of its control groups. */
export function isContainerId(text: string): boolean {
  return /^[0-9a-f]{64}$/.test(text);
}

/**
 * Ends what is left of containers that their Engine no longer knows: one that ends while it starts a container leaves the process that
 * was to become the first one, which waits for ever and holds all mounts (docs/facts.md, fact: volume-without-labels). Its control
 * groups are removed too. Nothing where this process does not see it, or may not signal it.
 *
 * @param containers ids. Rejects if a process of theirs does not end.
 */
export async function endLeftProcesses(containers: Iterable<string>): Promise<void> {
  const ids = new Set([...containers].filter(isContainerId));
  if (ids.size === 0) return;
  const groups = new Set<string>();
  let left: readonly number[] = [];
  for (let look = 0; look <= MAX_LOOKS; look += 1) {
    if (look > 0) await pause(PAUSE_MS);
    left = processesOf(ids).flatMap(({ pid, paths }) => {
      for (const path of paths) groups.add(path);
      return isSignalled(pid) ? [pid] : [];
    });
    if (left.length === 0) break;
  }
  for (const group of groups) for (const hierarchy of ["", ...namesIn(GROUPS)]) remove(join(GROUPS, hierarchy, group));
  if (left.length > 0) throw new Error(`processes that an Engine left do not end: ${left.join(", ")}`);
}

function processesOf(ids: ReadonlySet<string>): { readonly pid: number; readonly paths: readonly string[] }[] {
  return namesIn("/proc").flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    const paths = groupsOf(name).filter((path) => ids.has(GROUP_OF_CONTAINER.exec(path)?.[1] ?? ""));
    return paths.length === 0 ? [] : [{ pid, paths }];
  });
}

function groupsOf(pid: string): string[] {
  try {
    // Lines of `hierarchy:controllers:path`, cgroups(7).
    const lines = readFileSync(`/proc/${pid}/cgroup`, "utf8").split("\n");
    return lines.map((line) => line.split(":").slice(2).join(":"));
  } catch {
    // It has ended.
    return [];
  }
}

/** False if it has ended, or belongs to another user. */
function isSignalled(pid: number): boolean {
  try {
    return process.kill(pid, "SIGKILL");
  } catch {
    return false;
  }
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

function remove(group: string): void {
  try {
    rmdirSync(group);
  } catch {
    // It is in another hierarchy, has a process of another user, or is the Engine's again.
  }
}

/** `PF_EXITING` in the flags of /proc/PID/stat: it is set before the kernel closes the files of a process that ends. */
const EXITING = 0x4;
/** Process 1 of a cell, as this machine sees it. */
export interface FirstProcess {
  /** False from the moment on in which it ends. */
  isAlive(): boolean;
  /** Its id as this machine sees it. */
  readonly pid: number;
  /** SIGKILL ends every process of the cell with it. Nothing if this process may not signal it, or it has ended. */
  signal(name: NodeJS.Signals): void;
}

/** How long the Engine may take to end a cell before Corral ends it itself. */
const ENGINE_KILL_MS = 3000;

/**
 * Ends a cell by `engine`, and from outside if the Engine does not answer: a worker can stop a program for good that the
 * Engine is just starting in its cell, and the Engine waits for that program before it does anything else with the cell.
 */
export async function endedFromOutside<T>(first: FirstProcess | null, engine: () => Promise<T>): Promise<T> {
  const timer = setTimeout(() => first?.signal("SIGKILL"), ENGINE_KILL_MS);
  try {
    return await engine();
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Looks for it while the worker waits at the gate. It keeps the cell's output open until it ends
 * (docs/facts.md, fact: first-process-keeps-output). Null if the group does not show it.
 * Synchronous: these files are in memory.
 */
export function findFirstProcess(group: ControlGroup | null): FirstProcess | null {
  const pid = group?.processes().find((each) => /^NSpid:.*\t1$/m.test(kernelText(`/proc/${each}/status`) ?? ""));
  const begun = pid === undefined ? null : statOf(pid);
  if (pid === undefined || begun === null) return null;
  const isAlive = (): boolean => {
    const now = statOf(pid);
    return now !== null && now.startTime === begun.startTime && (now.flags & EXITING) === 0;
  };
  return { pid, isAlive, signal: (name) => void (isAlive() && signalled(pid, name)) };
}

function signalled(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended, or belongs to another user of this machine: then only an engine can end it.
  }
}

/** The program's name is in parentheses and may contain anything; the numbers follow it. */
function statOf(pid: number): { readonly flags: number; readonly startTime: string } | null {
  const text = kernelText(`/proc/${pid}/stat`);
  const fields = text?.slice(text.lastIndexOf(")") + 2).split(" ");
  // Fields 3 (state), 9 (flags) and 22 (start time) of proc(5).
  const [state, flags, startTime] = [fields?.[0], fields?.[6], fields?.[19]];
  if (state === undefined || flags === undefined || startTime === undefined || /[ZX]/.test(state)) return null;
  return { flags: Number(flags), startTime };
}
