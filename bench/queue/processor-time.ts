import { readdirSync, readFileSync } from "node:fs";

/** The kernel counts in this unit for programs. */
const TICKS_PER_SECOND = 100;
/** The place of these in `/proc/PID/stat`, after the name: parent, user, system, and those of ended children that were awaited. */
const [PARENT, USER, CHILDREN_SYSTEM] = [1, 11, 14];

/** User and system time, in milliseconds, of a process, its living children and all that it awaited. */
export function processorMs(pid: number): number {
  const ticks =
    ofOne(fieldsOf(String(pid)), CHILDREN_SYSTEM) +
    childrenOf(pid).reduce((sum, child) => sum + ofOne(child, USER + 1), 0);
  return (ticks * 1000) / TICKS_PER_SECOND;
}

function childrenOf(pid: number): (readonly string[])[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(fieldsOf)
    .filter((fields) => fields[PARENT] === String(pid));
}

function ofOne(fields: readonly string[], last: number): number {
  return fields.slice(USER, last + 1).reduce((sum, ticks) => sum + Number(ticks), 0);
}

/** Empty if it has ended. */
function fieldsOf(pid: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
  } catch {
    return [];
  }
}
