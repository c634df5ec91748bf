import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { SocketMemory } from "../plan/plan.ts";
import type { CellUsage } from "../port/cell.ts";

const ROOT = "/sys/fs/cgroup";
/** A cell whose worker has not begun has an init and the gate; one that is reaped may be full. */
const MAX_PROCESSES = 5000;

/** What the kernel accounts for a cell. All of it is read as files of this machine, which are in memory: synchronously. */
export interface ControlGroup {
  /** The ids of its processes as this machine sees them; empty if it is gone. */
  processes(): number[];
  /** Null if it is gone. */
  usage(): CellUsage | null;
  /** What it holds now, without files that the kernel keeps only because there is room; null if that is not known. */
  memoryBytes(): number | null;
  /**
   * Bounds what waits in sockets of its processes that are made from now on: version 1 counts that for no limit otherwise, and version 2 always
   * counts it as memory. Words for the report: what holds now.
   */
  boundSockets(maxBytes: number): SocketMemory;
  /** Its limits as a cell sees them, by their names below `/sys/fs/cgroup` there. */
  limits(): ReadonlyMap<string, string>;
  /** How many processes of it the kernel has killed for memory; null if that is not known. */
  oomKills(): number | null;
}

/** A part of the memory limit, beside it: a kernel of version 1 has no limit of both together. */
export function socketBytes(memoryBytes: number): number {
  return Math.floor(memoryBytes / 4 / PAGE_BYTES) * PAGE_BYTES;
}
const PAGE_BYTES = 4096;

/** `places`: where it may be, below the mount point of a hierarchy. Null if this machine does not show it. */
export function findControlGroup(places: readonly string[], root = ROOT): ControlGroup | null {
  for (const place of places) {
    if (existsSync(`${root}/cpuacct/${place}/cpuacct.usage`)) return version1((name) => `${root}/${name}/${place}`);
    if (existsSync(`${root}/${place}/cpu.stat`)) return version2(`${root}/${place}`);
  }
  return null;
}

/** Those hierarchies of version 1 in which cells have groups. */
export const HIERARCHIES = ["memory", "cpu", "cpuacct", "pids"] as const;
export type Hierarchy = (typeof HIERARCHIES)[number];

/** A group that is there, by its directories. */
export function groupIn(dirOf: (hierarchy: Hierarchy) => string, version: 1 | 2): ControlGroup {
  return version === 1 ? version1(dirOf) : version2(dirOf("memory"));
}

function version1(dirOf: (hierarchy: Hierarchy) => string): ControlGroup {
  return {
    processes: () => numbersOf(`${dirOf("pids")}/cgroup.procs`),
    boundSockets(maxBytes) {
      const file = `${dirOf("memory")}/memory.kmem.tcp.limit_in_bytes`;
      try {
        writeFileSync(file, String(maxBytes));
      } catch {
        // Only root may, and a kernel need not have it.
      }
      return numberIn(file) === maxBytes ? "counted" : "not counted";
    },
    oomKills: () => fieldIn(`${dirOf("memory")}/memory.oom_control`, "oom_kill"),
    limits: () =>
      limitsIn((name) => {
        const [hierarchy, file] = name.split("/");
        return `${dirOf(hierarchy as Hierarchy)}/${file}`;
      }, LIMITS_OF_VERSION_1),
    memoryBytes: () => heldIn(dirOf("memory"), "memory.usage_in_bytes", "total_inactive_file"),
    usage() {
      const nanoseconds = numberIn(`${dirOf("cpuacct")}/cpuacct.usage`);
      if (nanoseconds === null) return null;
      const memoryBytesPeak = numberIn(`${dirOf("memory")}/memory.max_usage_in_bytes`);
      return { cpuMs: Math.round(nanoseconds / 1e6), memoryBytesPeak };
    },
  };
}

/** Kernels from 5.19 on report the peak of memory. */
function version2(dir: string): ControlGroup {
  return {
    processes: () => numbersOf(`${dir}/cgroup.procs`),
    boundSockets: () => "counted",
    oomKills: () => fieldIn(`${dir}/memory.events`, "oom_kill"),
    limits: () => limitsIn((name) => `${dir}/${name}`, ["memory.max", "memory.swap.max", "pids.max", "cpu.max"]),
    memoryBytes: () => heldIn(dir, "memory.current", "inactive_file"),
    usage() {
      const microseconds = fieldIn(`${dir}/cpu.stat`, "usage_usec");
      if (microseconds === null) return null;
      const memoryBytesPeak = numberIn(`${dir}/memory.peak`) ?? numberIn(`${dir}/memory.current`);
      return { cpuMs: Math.round(microseconds / 1000), memoryBytesPeak };
    },
  };
}

const LIMITS_OF_VERSION_1 = [
  "memory/memory.limit_in_bytes",
  "memory/memory.memsw.limit_in_bytes",
  "pids/pids.max",
  "cpu/cpu.cfs_quota_us",
  "cpu/cpu.cfs_period_us",
];

function limitsIn(fileOf: (name: string) => string, names: readonly string[]): ReadonlyMap<string, string> {
  return new Map(
    names.flatMap((name) => {
      const text = kernelText(fileOf(name))?.trim();
      return text === undefined ? [] : [[name, text]];
    }),
  );
}

function heldIn(dir: string, whole: string, unneeded: string): number | null {
  const bytes = numberIn(`${dir}/${whole}`);
  return bytes === null ? null : Math.max(0, bytes - (fieldIn(`${dir}/memory.stat`, unneeded) ?? 0));
}

function numbersOf(file: string): number[] {
  const lines = kernelText(file)?.split("\n").slice(0, MAX_PROCESSES) ?? [];
  return lines.filter((line) => line !== "").map(Number);
}

function numberIn(file: string): number | null {
  const text = kernelText(file)?.trim() ?? "";
  return /^\d+$/.test(text) ? Number(text) : null;
}

/** `usage_usec 1234` among other lines. */
function fieldIn(file: string, name: string): number | null {
  const line = kernelText(file)
    ?.split("\n")
    .find((each) => each.startsWith(`${name} `));
  const value = line?.slice(name.length + 1) ?? "";
  return /^\d+$/.test(value) ? Number(value) : null;
}

/** A file that the kernel makes; null if it is gone, or cannot be read. */
export function kernelText(file: string): string | null {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return null;
  }
}

/**
 * Milliseconds between measurements after the worker was released; the last interval repeats. To read two files costs
 * almost nothing; a request to an engine costs it as much as a small worker.
 */
const FILE_INTERVALS_MS = [25, 75, 150, 250, 500, 1000] as const;
const REQUEST_INTERVALS_MS = [150, 350, 500, 1000, 2000] as const;

/** How a cell is measured: by files of this machine, or by a request to its engine. Null: it is gone. */
export type UsageMeasure =
  | { readonly by: "files"; readonly read: () => CellUsage | null }
  | { readonly by: "request"; readonly ask: () => Promise<CellUsage | null> };

/** Measures a running cell from time to time: after its end the values are gone. */
export class UsageSampler {
  readonly #find: () => UsageMeasure;
  #measure: UsageMeasure | null = null;
  #usage: CellUsage = { cpuMs: null, memoryBytesPeak: null };
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;

  /** `find` is called once, when the measurements begin. */
  constructor(find: () => UsageMeasure) {
    this.#find = find;
  }

  /** From now on; once. */
  begin(): void {
    this.#measure = this.#find();
    this.#schedule(this.#measure, 0);
  }

  last(): CellUsage {
    return this.#usage;
  }

  /** A last measurement that was made otherwise. */
  add(measured: CellUsage | null): void {
    if (measured !== null) this.#usage = merge(this.#usage, measured);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #schedule(measure: UsageMeasure, index: number): void {
    const intervals = measure.by === "files" ? FILE_INTERVALS_MS : REQUEST_INTERVALS_MS;
    const next = Math.min(index, intervals.length - 1);
    this.#timer = setTimeout(() => void this.#sample(measure, next), intervals[next]);
    this.#timer.unref();
  }

  async #sample(measure: UsageMeasure, index: number): Promise<void> {
    const measured = measure.by === "files" ? measure.read() : await measure.ask();
    if (this.#stopped) return;
    this.add(measured);
    this.#schedule(measure, index + 1);
  }
}

/** cgroup v1 keeps the peak; v2 may report only the present value, so the largest one seen is used. */
function merge(before: CellUsage, { cpuMs, memoryBytesPeak: memory }: CellUsage): CellUsage {
  return {
    cpuMs,
    memoryBytesPeak: memory === null ? before.memoryBytesPeak : Math.max(before.memoryBytesPeak ?? 0, memory),
  };
}
