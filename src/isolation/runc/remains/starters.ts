import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { hasCode } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";

const MAX_ATTEMPTS = 500;
const PAUSE_MS = 5;

/**
 * Ends the programs that make a cell, or wait for its end, after the process that started them has ended: one that has read its
 * configuration would still make control groups and notes of a cell whose directory is gone. Each has the directory of the
 * cell as its working directory, which no process in a cell ever sees; runc itself, which enters its bundle, has the cell's name as
 * its last word. A program of the user may have one of these too, so only those that Corral starts are ended. Rejects with
 * `EngineTrouble` if some do not end.
 */
export async function endStarters(dir: string, id?: string): Promise<void> {
  const cell = identityOf(dir);
  const isThere = (pid: string): boolean => cell !== null && identityOf(`/proc/${pid}/cwd`) === cell;
  const isStarter = (pid: string): boolean => {
    const words = wordsOf(pid);
    if (isThere(pid) && (OURS.test(programOf(pid)) || AS_STARTED.test(words))) return true;
    return id !== undefined && words.endsWith(`\0${id}\0`) && AS_STARTED.test(words) && RUNC.test(programOf(pid));
  };
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const starters = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && isStarter(pid));
    if (starters.length === 0) return;
    for (const pid of starters) kill(Number(pid));
    await pause(PAUSE_MS);
  }
  throw new EngineTrouble("a program that makes a cell cannot be ended");
}

/** The program of a process, as the kernel names it: ` (deleted)` follows if it was replaced since. */
const RUNC = /runc[^/]*$/;
/** runc, the gate's binary, and what `asByTheEngine` starts before them. */
const OURS = /runc[^/]*$|\/gate\/[0-9a-f]{64}\/busybox( \(deleted\))?$|\/(chrt|nice)$/;
/** Words in the middle of the command line of each runc that this driver starts. Users do not ask for such a log. */
const AS_STARTED = /\0--log-format\0json\0(run|exec)\0/;

/** The command line, each word with its end; empty if the process is gone. */
function wordsOf(pid: string): string {
  return nothingIfGone(() => readFileSync(`/proc/${pid}/cmdline`, "latin1")) ?? "";
}

/** Empty if it is gone, or is one of the kernel's own. */
function programOf(pid: string): string {
  return nothingIfGone(() => readlinkSync(`/proc/${pid}/exe`)) ?? "";
}

function identityOf(path: string): string | null {
  return nothingIfGone(() => {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev}:${ino}`;
  });
}

function nothingIfGone<T>(read: () => T): T | null {
  try {
    return read();
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
