import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Corral, openCorral, run } from "../src/index.ts";
import type { Plan } from "../src/isolation/plan.ts";
import type { WorkerDefinition } from "../src/project/worker.ts";
import { openSession } from "../src/run/session/open-session.ts";
import { benchColdRun } from "./cold-run.ts";
import { benchExec } from "./exec.ts";
import { benchAccessCheck, benchFiles } from "./files.ts";
import { benchWholeProcess } from "./whole-process.ts";

/** Prints ratios, and judges nothing: machines are shared and noisy. */
const dir = await mkdtemp(join(tmpdir(), "corral-bench-"));
try {
  await writeProject(dir);
  const stateDir = join(dir, "state");
  const plans: Plan[] = [];
  await using corral = await openCorral({
    projectDir: join(dir, "project"),
    stateDir,
    engineEnv: process.env,
    emit: (event) => void (event.type === "started" && plans.push(event.plan)),
  });
  const worker = corral.project.workers.get("nothing");
  if (worker === undefined) throw new Error("the bench project was not read");
  const first = await run({ worker, signal: new AbortController().signal }, corral.environment);
  const [plan] = plans;
  if (first.status !== "succeeded" || plan === undefined) throw new Error(first.error?.message ?? first.status);
  await benchInSession(corral, worker);
  benchAccessCheck();
  await benchColdRun(corral, plan);
  await benchWholeProcess(join(dir, "project"), stateDir, plan);
} finally {
  await rm(dir, { recursive: true, force: true });
}

/** What tools do: on the host's side of a sandbox, and in a cell that waits for commands. */
async function benchInSession({ environment, connection }: Corral, worker: WorkerDefinition): Promise<void> {
  const { signal } = new AbortController();
  const opened = await openSession({ worker, signal }, environment);
  if (!opened.ok) throw new Error(opened.violations.map(({ message }) => message).join("\n"));
  await using _ = opened;
  const { cell, plan } = await opened.session.cell(signal);
  const container = connection.docker.getContainer(cell.id);
  await benchFiles(opened.session.files, container, plan);
  await benchExec(opened.session, container, plan);
}

/** One worker that does nothing, with one mount that it reads and one that it writes. */
async function writeProject(parent: string): Promise<void> {
  const project = join(parent, "project");
  await mkdir(join(project, "workers"), { recursive: true });
  await mkdir(join(project, "data"));
  await chmod(parent, 0o755);
  await writeFile(
    join(project, "corral.yaml"),
    "version: 1\npolicy: untrusted\nsandbox:\n  mode: sandboxed\n  root: .sandbox\n  zones:\n    data: { mode: ro }\n    out: { mode: rw, approval: preApproved }\n",
  );
  await writeFile(
    join(project, "workers", "nothing.worker"),
    '---\nname: nothing\ncommand: ["true"]\nsandbox: { zones: [{ name: data }, { name: out, mode: rw }] }\nshell_rules: { default: preApproved }\n---\n',
  );
}
