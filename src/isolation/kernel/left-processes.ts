import { readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const GROUPS = "/sys/fs/cgroup";
const CONTAINER_ID = /^[0-9a-f]{64}$/;
/** A killed process ends within milliseconds, unless the kernel is busy with it. */
const MAX_LOOKS = 20;
const PAUSE_MS = 50;

/**
 * Ends what is left of a container that its Engine no longer knows: one that ends while it starts a container leaves the process that
 * was to become the first one, which waits for ever and holds all mounts (docs/architecture.md, fact: volume-without-labels). Its control
 * groups are removed too. Nothing where this process does not see it, or may not signal it.
 */
export async function endLeftProcesses(container: string): Promise<void> {
  if (!CONTAINER_ID.test(container)) return;
  const groups = new Set<string>();
  for (let look = 0; look < MAX_LOOKS; look += 1) {
    const left = processesOf(container);
    if (left.length === 0) break;
    for (const { pid, paths } of left) {
      for (const path of paths) groups.add(path);
      signal(pid);
    }
    await pause(PAUSE_MS);
  }
  for (const group of groups) for (const hierarchy of ["", ...namesIn(GROUPS)]) remove(join(GROUPS, hierarchy, group));
}

function processesOf(container: string): { readonly pid: number; readonly paths: readonly string[] }[] {
  return namesIn("/proc").flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    // The last part is `ID`, or with systemd's names `docker-ID.scope`.
    const paths = groupsOf(name).filter(
      (path) => path.endsWith(`/${container}`) || path.endsWith(`-${container}.scope`),
    );
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

function signal(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended, or belongs to another user.
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
