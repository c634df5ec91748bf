import type Docker from "dockerode";
import type { CellUsage } from "../port/cell.ts";
import { type CgroupFiles, findCgroup } from "./cgroup-files.ts";

/**
 * When measurements are taken after the worker was let in, in milliseconds; then the last interval again and again.
 * A question to the Engine costs it as much as a small worker, two files cost nothing.
 */
const FILE_INTERVALS_MS = [25, 75, 150, 250, 500, 1000] as const;
const ENGINE_INTERVALS_MS = [150, 350, 500, 1000, 2000] as const;

/** Measures a running container from time to time: when it has ended, nobody tells any more. */
export class UsageSampler {
  readonly #container: Docker.Container;
  #files: CgroupFiles | null = null;
  #usage: CellUsage = { cpuMs: null, memoryBytesPeak: null };
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(container: Docker.Container) {
    this.#container = container;
  }

  /** From now on; once. */
  begin(): void {
    this.#files = findCgroup(this.#container.id);
    this.#schedule(0);
  }

  last(): CellUsage {
    return this.#usage;
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #schedule(index: number): void {
    const intervals = this.#files === null ? ENGINE_INTERVALS_MS : FILE_INTERVALS_MS;
    const next = Math.min(index, intervals.length - 1);
    this.#timer = setTimeout(() => void this.#measure(next), intervals[next]);
    this.#timer.unref();
  }

  async #measure(index: number): Promise<void> {
    const measured = this.#files === null ? await askEngine(this.#container) : this.#files.read();
    if (this.#stopped) return;
    if (measured !== null) this.#usage = merge(this.#usage, measured);
    this.#schedule(index + 1);
  }
}

async function askEngine(container: Docker.Container): Promise<CellUsage | null> {
  const stats = await container.stats({ stream: false, "one-shot": true }).catch(() => null);
  // A container that has ended answers with zeros, and some runtimes with nothing, which is no measurement.
  if (stats === null || !(stats.cpu_stats?.cpu_usage?.total_usage > 0)) return null;
  return {
    cpuMs: Math.round(stats.cpu_stats.cpu_usage.total_usage / 1e6),
    memoryBytesPeak: stats.memory_stats?.max_usage ?? stats.memory_stats?.usage ?? null,
  };
}

/** cgroup v1 keeps the peak itself; v2 may tell only the present, and the largest seen is the best that is known. */
function merge(before: CellUsage, { cpuMs, memoryBytesPeak: memory }: CellUsage): CellUsage {
  return {
    cpuMs,
    memoryBytesPeak: memory === null ? before.memoryBytesPeak : Math.max(before.memoryBytesPeak ?? 0, memory),
  };
}
