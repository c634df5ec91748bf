import { readFileSync, readlinkSync } from "node:fs";

/** More ancestors than a process of a container has. */
const MAX_ANCESTORS = 100;

/**
 * The nearest process above this one that has other mounts: what started its container, and lives as long. Null if none can be seen
 * (docs/architecture.md, fact: pins-of-a-container).
 */
export function outerProcess(): number | null {
  try {
    const own = readlinkSync("/proc/self/ns/mnt");
    let pid = process.ppid;
    for (let step = 0; step < MAX_ANCESTORS && pid > 0; step += 1) {
      if (readlinkSync(`/proc/${pid}/ns/mnt`) !== own) return pid;
      pid = Number(/^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1] ?? 0);
    }
  } catch {
    // A process that this one may not inspect.
  }
  return null;
}
