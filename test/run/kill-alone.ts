import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";

/** `kill -9` of a process of Corral and of its `corral-watch`: what it leaves is there until a test removes it. */
export function killAlone(child: ChildProcess): void {
  const { pid = 0 } = child;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  const watches = children.filter((each) => readFileSync(`/proc/${each}/cmdline`, "utf8").includes("corral-watch"));
  for (const watch of watches) process.kill(watch, "SIGKILL");
  child.kill("SIGKILL");
}
