import { readdirSync, readFileSync, statSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { hasCode } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";

const MAX_ATTEMPTS = 500;
const PAUSE_MS = 5;

/**
 * Ends the programs that make a cell, or wait for its end, after the process that started them has ended: one that has read its
 * configuration would still make control groups and notes of a cell whose directory is gone. Each has the directory of the
 * cell as its working directory, which no process in a cell ever sees; runc itself, which enters its bundle, has the cell's name as
 * its last word. Rejects with `EngineTrouble` if some do not end.
 */
export async function endStarters(dir: string, id?: string): Promise<void> {
  const cell = identityOf(dir);
  const isStarter = (pid: string): boolean =>
    (cell !== null && identityOf(`/proc/${pid}/cwd`) === cell) || (id !== undefined && lastWordOf(pid) === id);
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const starters = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && isStarter(pid));
    if (starters.length === 0) return;
    for (const pid of starters) kill(Number(pid));
    await pause(PAUSE_MS);
  }
  throw new EngineTrouble("a program that makes a cell cannot be ended");
}

/** Of its command line; empty if it is gone. */
function lastWordOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0").at(-2) ?? "";
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return "";
    throw error;
  }
}

/** Null if it is gone. */
function identityOf(path: string): string | null {
  try {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return null;
    throw error;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}
