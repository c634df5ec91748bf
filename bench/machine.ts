import { execFile } from "node:child_process";
import { availableParallelism, cpus, loadavg, release, totalmem } from "node:os";
import { promisify } from "node:util";
import type Docker from "dockerode";
import type { Machine } from "./outcome/report.ts";

const execute = promisify(execFile);

/** `loadBefore`: the load average over one minute before the bench began. */
export async function machineFacts(docker: Docker, loadBefore: number): Promise<Machine> {
  const { Version: engine } = await docker.version();
  return {
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    processor: cpus()[0]?.model.trim() ?? "",
    kernel: release(),
    node: process.versions.node,
    engine,
    runc: await runcVersion(),
    loadBefore,
    loadAfter: loadavg()[0] ?? 0,
  };
}

async function runcVersion(): Promise<string | null> {
  const said = await execute("runc", ["--version"]).catch(() => null);
  return /^runc version (\S+)/m.exec(said?.stdout ?? "")?.[1] ?? null;
}
