import { existsSync, readFileSync } from "node:fs";
import type { CellUsage } from "../port/cell.ts";

/** The control groups of one container, as files of this machine. */
export interface CgroupFiles {
  /** Null where they are gone, or cannot be read. */
  read(): CellUsage | null;
}

const ROOT = "/sys/fs/cgroup";

/**
 * Where Engines put a container's control groups: by themselves, or in the words of systemd. Null where they are in none
 * of these places, as with an Engine that is a container itself. Synchronous: these files are in memory.
 */
export function findCgroup(container: string): CgroupFiles | null {
  for (const place of [`docker/${container}`, `system.slice/docker-${container}.scope`]) {
    if (existsSync(`${ROOT}/cpuacct/${place}/cpuacct.usage`)) return { read: () => readV1(place) };
    if (existsSync(`${ROOT}/${place}/cpu.stat`)) return { read: () => readV2(place) };
  }
  return null;
}

/** Nanoseconds, and the kernel's own peak. */
function readV1(place: string): CellUsage | null {
  const nanoseconds = numberIn(`${ROOT}/cpuacct/${place}/cpuacct.usage`);
  if (nanoseconds === null) return null;
  const memoryBytesPeak = numberIn(`${ROOT}/memory/${place}/memory.max_usage_in_bytes`);
  return { cpuMs: Math.round(nanoseconds / 1e6), memoryBytesPeak };
}

/** `usage_usec 1234` among others; the peak is told by kernels from 5.19 on. */
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
