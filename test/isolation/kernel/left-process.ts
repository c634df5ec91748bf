import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

const HIERARCHY = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].find((dir) => existsSync(`${dir}/cgroup.procs`));

/** False where this process may not make control groups. */
export const canLeaveProcesses = process.getuid?.() === 0 && HIERARCHY !== undefined;

/** A process in the control group of a container that no Engine knows, as an Engine leaves one that ends while it starts the container. */
export function leftProcess(container: string, nameOf = (id: string) => id) {
  const group = `${HIERARCHY}/corral-test-${container}/${nameOf(container)}`;
  mkdirSync(group, { recursive: true });
  const child = spawn("sleep", ["300"], { stdio: "ignore" });
  writeFileSync(`${group}/cgroup.procs`, String(child.pid));
  const ended = once(child, "exit");
  const isOver = (): boolean => child.exitCode !== null || child.signalCode !== null;
  return {
    ended,
    isOver,
    hasGroup: () => existsSync(group),
    async [Symbol.asyncDispose](): Promise<void> {
      if (!isOver()) child.kill("SIGKILL");
      await ended;
      for (const each of [group, dirname(group)]) if (existsSync(each)) rmdirSync(each);
    },
  };
}
