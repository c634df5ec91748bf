import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

const SECCOMP = fileURLToPath(new URL("../../policies/seccomp.json", import.meta.url));
const execute = promisify(execFile);

export async function hasDockerCommand(): Promise<boolean> {
  return await execute("docker", ["--version"]).then(
    () => true,
    () => false,
  );
}

/** Runs the docker command with the flags that express the plan. */
export async function dockerRun(plan: Plan, run: OneRun): Promise<void> {
  await execute("docker", ["run", ...flagsOf(plan), ...bindsOf(run), plan.image.name, ...run.command]);
}

export async function dockerExec(container: string, { user }: Plan, command: readonly string[]): Promise<void> {
  await execute("docker", ["exec", "--user", `${user.uid}:${user.gid}`, container, ...command]);
}

function flagsOf({ limits, user, tmpfs, workingDir }: Plan): string[] {
  return [
    ...["--rm", "--init", "--network", "none", "--read-only", "--cap-drop", "ALL", "--ipc", "private"],
    ...["--log-driver", "none", "--security-opt", "no-new-privileges", "--security-opt", `seccomp=${SECCOMP}`],
    ...["--memory", String(limits.memoryBytes), "--memory-swap", String(limits.memoryBytes)],
    ...["--cpus", String(limits.cpus), "--pids-limit", String(limits.pids), "--user", `${user.uid}:${user.gid}`],
    ...["--ulimit", `nofile=${limits.nofile}`, "--ulimit", `fsize=${limits.diskBytes}`, "--ulimit", "core=0"],
    ...tmpfs.flatMap(({ path, bytes }) => ["--tmpfs", `${path}:rw,nosuid,nodev,noexec,size=${bytes}`]),
    ...["--workdir", workingDir],
  ];
}

function bindsOf({ binds }: OneRun): string[] {
  return binds.flatMap(({ host, path, mode }) => [
    "--mount",
    `type=bind,src=${host},dst=${path}${mode === "ro" ? ",readonly" : ""}`,
  ]);
}
