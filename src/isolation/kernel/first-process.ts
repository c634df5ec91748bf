import { readFileSync } from "node:fs";
import type { ControlGroup } from "./control-group.ts";

/** `PF_EXITING` in the flags of /proc/PID/stat: it is set before the kernel closes the files of a process that ends. */
const EXITING = 0x4;
/** Process 1 of a cell, as this machine sees it. */
export interface FirstProcess {
  /** False from the moment on in which it ends. */
  isAlive(): boolean;
  /** Its id as this machine sees it. */
  readonly pid: number;
  /** SIGKILL ends every process of the cell with it. Nothing if this process may not signal it, or it has ended. */
  signal(name: NodeJS.Signals): void;
}

/** How long the Engine may take to end a cell before Corral ends it itself. */
const ENGINE_KILL_MS = 3000;

/**
 * Ends a cell by `engine`, and from outside if the Engine does not answer: a worker can stop a program for good that the
 * Engine is just starting in its cell, and the Engine waits for that program before it does anything else with the cell.
 */
export async function endedFromOutside<T>(first: FirstProcess | null, engine: () => Promise<T>): Promise<T> {
  const timer = setTimeout(() => first?.signal("SIGKILL"), ENGINE_KILL_MS);
  try {
    return await engine();
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Looks for it while the worker waits at the gate. It keeps the cell's output open until it ends
 * (docs/architecture.md, fact: first-process-keeps-output). Null if the group does not show it.
 * Synchronous: these files are in memory.
 */
export function findFirstProcess(group: ControlGroup | null): FirstProcess | null {
  const pid = group?.processes().find((each) => /^NSpid:.*\t1$/m.test(textOf(`/proc/${each}/status`) ?? ""));
  const begun = pid === undefined ? null : statOf(pid);
  if (pid === undefined || begun === null) return null;
  const isAlive = (): boolean => {
    const now = statOf(pid);
    return now !== null && now.startTime === begun.startTime && (now.flags & EXITING) === 0;
  };
  return { pid, isAlive, signal: (name) => void (isAlive() && signalled(pid, name)) };
}

function signalled(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended, or belongs to another user of this machine: then only an engine can end it.
  }
}

/** The program's name is in parentheses and may contain anything; the numbers follow it. */
function statOf(pid: number): { readonly flags: number; readonly startTime: string } | null {
  const text = textOf(`/proc/${pid}/stat`);
  const fields = text?.slice(text.lastIndexOf(")") + 2).split(" ");
  // Fields 3 (state), 9 (flags) and 22 (start time) of proc(5).
  const [state, flags, startTime] = [fields?.[0], fields?.[6], fields?.[19]];
  if (state === undefined || flags === undefined || startTime === undefined || /[ZX]/.test(state)) return null;
  return { flags: Number(flags), startTime };
}

function textOf(file: string): string | null {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return null;
  }
}
