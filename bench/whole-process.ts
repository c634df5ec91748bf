import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Plan } from "../src/isolation/plan.ts";
import { type Contender, compare, printTimings } from "./measure.ts";

const ROUNDS = 10;
const CORRAL = fileURLToPath(new URL("../dist/cli/corral.js", import.meta.url));
const execute = promisify(execFile);

/** `corral run` as a whole process against `docker run` with the same flags. */
export async function benchWholeProcess(projectDir: string, stateDir: string, plan: Plan): Promise<void> {
  const env = { ...process.env, CORRAL_STATE_DIR: stateDir };
  const docker: Contender = { name: "docker run", once: async () => void (await execute("docker", dockerRun(plan))) };
  const corral: Contender = {
    name: "corral run",
    once: async () =>
      void (await execute(process.execPath, [CORRAL, "run", "nothing", "--project", projectDir], { env })),
  };
  const found = await execute("docker", ["--version"]).catch(() => null);
  if (found === null)
    console.log("\nThe docker command is not installed: `corral run` is not compared with `docker run`.");
  else printTimings("A whole process that runs `true`, same flags", await compare([docker, corral], ROUNDS));
}

function dockerRun(plan: Plan): string[] {
  const { limits, user } = plan;
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return [
    ...[
      "run",
      "--rm",
      "--init",
      "--network",
      "none",
      "--read-only",
      "--cap-drop",
      "ALL",
      "--log-driver",
      "none",
      "--ipc",
      "private",
    ],
    ...[
      "--security-opt",
      "no-new-privileges",
      "--security-opt",
      `seccomp=${fileURLToPath(new URL("../policies/seccomp.json", import.meta.url))}`,
    ],
    ...["--memory", String(limits.memoryBytes), "--memory-swap", String(limits.memoryBytes)],
    ...["--cpus", String(limits.cpus), "--pids-limit", String(limits.pids), "--user", `${user.uid}:${user.gid}`],
    ...["--ulimit", `nofile=${limits.nofile}`, "--ulimit", `fsize=${limits.fileBytes}`, "--ulimit", "core=0"],
    ...plan.tmpfs.flatMap(({ path, bytes }) => ["--tmpfs", `${path}:rw,nosuid,nodev,noexec,size=${bytes}`]),
    ...mounts.flatMap(({ host, path, mode }) => [
      "--mount",
      `type=bind,src=${host},dst=${path}${mode === "ro" ? ",readonly" : ""}`,
    ]),
    ...["--workdir", plan.workingDir, plan.image.name, ...plan.command],
  ];
}
