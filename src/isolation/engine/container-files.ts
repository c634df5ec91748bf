import { readFile } from "node:fs/promises";
import type Docker from "dockerode";
import { z } from "zod";
import { collectSockets, heldBytes } from "../disk/unnamed-files.ts";
import { type ControlGroup, findControlGroup, socketBytes } from "../kernel/control-group.ts";
import { type FirstProcess, findFirstProcess } from "../kernel/first-process.ts";
import type { Measure } from "../kernel/usage-sampler.ts";
import type { Enforcement } from "../plan/enforcement.ts";
import type { CellUsageNow } from "../port/cell.ts";
import { asked } from "./answers/asked.ts";

/** Where Engines put a container's control groups: with their own names, or with systemd's. Null if they are in neither place, as with an Engine that runs in a container. */
function controlGroupOf(container: string): ControlGroup | null {
  return findControlGroup([`docker/${container}`, `system.slice/docker-${container}.scope`]);
}

/** Process 1 of a container; null if this machine does not show it, e.g. with a runtime that has processes of its own. */
export function firstProcessOf(container: string): FirstProcess | null {
  return findFirstProcess(controlGroupOf(container));
}

/** Bounds what waits in the sockets of a container. Absent if this machine does not show its control groups. */
export function socketMemoryOf(container: string, memoryBytes: number): Pick<Enforcement, "socketMemory"> {
  const group = controlGroupOf(container);
  return group === null ? {} : { socketMemory: group.boundSockets(socketBytes(memoryBytes)) };
}

/** How to measure a container. */
export function measureOf(container: Docker.Container): Measure {
  const group = controlGroupOf(container.id);
  return group === null
    ? { by: "request", ask: () => askEngine(container) }
    : { by: "files", read: () => group.usage() };
}

/** What a container that runs uses now; null if it does not run. */
export async function usageNow(container: Docker.Container): Promise<CellUsageNow | null> {
  const group = controlGroupOf(container.id);
  const usage = group?.usage() ?? null;
  return group === null || usage === null ? await askEngine(container) : { ...usage, memoryBytes: group.memoryBytes() };
}

async function askEngine(container: Docker.Container): Promise<CellUsageNow | null> {
  const stats = await container.stats({ stream: false, "one-shot": true }).catch(() => null);
  // For a container that has ended the Engine reports zeros, and some runtimes nothing: that is no measurement.
  if (stats === null || !(stats.cpu_stats?.cpu_usage?.total_usage > 0)) return null;
  const { usage, max_usage: peak, stats: kinds } = stats.memory_stats ?? {};
  const unneeded = kinds?.total_inactive_file ?? kinds?.inactive_file ?? 0;
  return {
    memoryBytes: usage === undefined ? null : Math.max(0, usage - unneeded),
    cpuMs: Math.round(stats.cpu_stats.cpu_usage.total_usage / 1e6),
    memoryBytesPeak: peak ?? usage ?? null,
  };
}

const ProcessTable = z.object({ Titles: z.array(z.string()), Processes: z.array(z.array(z.string())) });

/** What a container's processes hold of deleted files; null if this user may not inspect them. */
export async function unnamedBytes(container: Docker.Container): Promise<number | null> {
  await collectSockets();
  const table = await asked(() => container.top(), ProcessTable).catch(() => null);
  if (table === null) return null;
  const column = table.Titles.indexOf("PID");
  const pids = table.Processes.map((process) => Number(process[column]));
  // A process may have ended and its id been reused: files of the new process are not this cell's.
  const isItsOwn = async (pid: number): Promise<boolean> =>
    (await readFile(`/proc/${pid}/cgroup`, "latin1").catch(() => "")).includes(container.id);
  return await heldBytes(pids, isItsOwn);
}
