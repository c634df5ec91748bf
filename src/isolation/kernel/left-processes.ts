import { readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

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
 * was to become the first one, which waits for ever and holds all mounts (docs/architecture.md, fact: volume-without-labels). Its control
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
