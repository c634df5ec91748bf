import type Docker from "dockerode";
import type { CellUsage } from "../cell.ts";

/** When measurements are taken after the start, in milliseconds; then the last interval again and again. */
const INTERVALS_MS = [150, 350, 500, 1000, 2000] as const;

export interface UsageSampler {
  readonly last: () => CellUsage;
  stop(): void;
}

/** Measures a running container from time to time: when it has ended, the Engine no longer tells. */
export function sampleUsage(container: Docker.Container): UsageSampler {
  let usage: CellUsage = { cpuMs: null, memoryBytesPeak: null };
  let stopped = false;
  let timer: NodeJS.Timeout;
  const schedule = (index: number): void => {
    timer = setTimeout(() => void measure(index), INTERVALS_MS[index]);
    timer.unref();
  };
  const measure = async (index: number): Promise<void> => {
    const stats = await container.stats({ stream: false, "one-shot": true }).catch(() => null);
    if (stopped) return;
    // A container that has ended answers with zeros, and some runtimes with nothing, which is no measurement.
    if (stats !== null && stats.cpu_stats?.cpu_usage?.total_usage > 0) usage = merge(usage, stats);
    schedule(Math.min(index + 1, INTERVALS_MS.length - 1));
  };
  schedule(0);
  return {
    last: () => usage,
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

function merge(before: CellUsage, stats: Docker.ContainerStats): CellUsage {
  // cgroup v1 keeps the peak itself; v2 tells only the present, and the largest seen is the best that is known.
  const memory = stats.memory_stats?.max_usage ?? stats.memory_stats?.usage ?? null;
  return {
    cpuMs: Math.round(stats.cpu_stats.cpu_usage.total_usage / 1e6),
    memoryBytesPeak: memory === null ? before.memoryBytesPeak : Math.max(before.memoryBytesPeak ?? 0, memory),
  };
}
