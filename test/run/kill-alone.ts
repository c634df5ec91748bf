import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";

/** `kill -9` of a process of Corral and of its `corral-watch`: what it leaves is there until a test removes it. */
export function killAlone(child: ChildProcess): void {
  const { pid = 0 } = child;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  const watches = children.filter((each) => commandLine(each).includes("corral-watch"));
  for (const watch of watches) process.kill(watch, "SIGKILL");
  child.kill("SIGKILL");
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    // A program that it had started has ended since they were listed.
    return "";
  }
}
