import { existsSync, readFileSync } from "node:fs";
import type Docker from "dockerode";
import type { CellUsage } from "../port/cell.ts";

/**
 * Milliseconds between measurements after the worker was released; the last interval repeats. A request to the Engine
 * costs it as much as a small worker; reading two files costs almost nothing.
 */
const FILE_INTERVALS_MS = [25, 75, 150, 250, 500, 1000] as const;
const ENGINE_INTERVALS_MS = [150, 350, 500, 1000, 2000] as const;

/** Measures a running container from time to time: after its end the values are gone. */
export class UsageSampler {
  readonly #container: Docker.Container;
  /** Reads the control groups of the container as files of this machine; its answer is null if they are gone. */
  #read: (() => CellUsage | null) | null = null;
  #usage: CellUsage = { cpuMs: null, memoryBytesPeak: null };
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(container: Docker.Container) {
    this.#container = container;
  }

  /** From now on; once. */
  begin(): void {
    this.#read = findCgroup(this.#container.id);
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
    const intervals = this.#read === null ? ENGINE_INTERVALS_MS : FILE_INTERVALS_MS;
    const next = Math.min(index, intervals.length - 1);
    this.#timer = setTimeout(() => void this.#measure(next), intervals[next]);
    this.#timer.unref();
  }

  async #measure(index: number): Promise<void> {
    const measured = this.#read === null ? await askEngine(this.#container) : this.#read();
    if (this.#stopped) return;
    if (measured !== null) this.#usage = merge(this.#usage, measured);
    this.#schedule(index + 1);
  }
}

async function askEngine(container: Docker.Container): Promise<CellUsage | null> {
  const stats = await container.stats({ stream: false, "one-shot": true }).catch(() => null);
  // For a container that has ended the Engine reports zeros, and some runtimes nothing: that is no measurement.
  if (stats === null || !(stats.cpu_stats?.cpu_usage?.total_usage > 0)) return null;
  return {
    cpuMs: Math.round(stats.cpu_stats.cpu_usage.total_usage / 1e6),
    memoryBytesPeak: stats.memory_stats?.max_usage ?? stats.memory_stats?.usage ?? null,
  };
}

/** cgroup v1 keeps the peak; v2 may report only the present value, so the largest one seen is used. */
function merge(before: CellUsage, { cpuMs, memoryBytesPeak: memory }: CellUsage): CellUsage {
  return {
    cpuMs,
    memoryBytesPeak: memory === null ? before.memoryBytesPeak : Math.max(before.memoryBytesPeak ?? 0, memory),
  };
}

const ROOT = "/sys/fs/cgroup";

/**
 * Where Engines put a container's control groups: with their own names, or with systemd's. Null if they are in neither
 * place, as with an Engine that runs in a container. Synchronous: these files are in memory.
 */
function findCgroup(container: string): (() => CellUsage | null) | null {
  for (const place of [`docker/${container}`, `system.slice/docker-${container}.scope`]) {
    if (existsSync(`${ROOT}/cpuacct/${place}/cpuacct.usage`)) return () => readV1(place);
    if (existsSync(`${ROOT}/${place}/cpu.stat`)) return () => readV2(place);
  }
  return null;
}

/** Processor time in nanoseconds, and the kernel's own peak of memory. */
function readV1(place: string): CellUsage | null {
  const nanoseconds = numberIn(`${ROOT}/cpuacct/${place}/cpuacct.usage`);
  if (nanoseconds === null) return null;
  const memoryBytesPeak = numberIn(`${ROOT}/memory/${place}/memory.max_usage_in_bytes`);
  return { cpuMs: Math.round(nanoseconds / 1e6), memoryBytesPeak };
}

/** `usage_usec 1234` among others; kernels from 5.19 on report the peak. */
function readV2(place: string): CellUsage | null {
  const microseconds = /^usage_usec (\d+)$/m.exec(textOf(`${ROOT}/${place}/cpu.stat`) ?? "")?.[1];
  if (microseconds === undefined) return null;
  const memory = numberIn(`${ROOT}/${place}/memory.peak`) ?? numberIn(`${ROOT}/${place}/memory.current`);
  return { cpuMs: Math.round(Number(microseconds) / 1000), memoryBytesPeak: memory };
}

function numberIn(file: string): number | null {
  const text = textOf(file)?.trim() ?? "";
  return /^\d+$/.test(text) ? Number(text) : null;
}

function textOf(file: string): string | null {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return null;
  }
}
