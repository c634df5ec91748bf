import type { Stage } from "../../changes/stage.ts";
import type { DiskBaseline } from "../../isolation/disk/disk-baseline.ts";
import type { DiskWatch } from "../../isolation/disk/disk-watch.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import type { SessionCell } from "../../isolation/port/exec.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { formatBytes } from "../../sandbox/units.ts";
import type { ExecFacts } from "../../tools/exec-hints/wording.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { type BrokerService, openBroker } from "../cell/broker.ts";
import { prepare } from "../cell/prepare.ts";
import { watchDisk } from "../cell/watch-disk.ts";
import { inCell } from "../model/cell-path.ts";
import type { RunEnvironment } from "../model/environment.ts";
import { type Job, newRunId, placeOf } from "../model/job.ts";
import { describeAll } from "../model/result.ts";

/** A session's verified cell, which waits for commands; disposing takes it and its socket away. */
export interface OpenCell extends AsyncDisposable {
  readonly cell: SessionCell;
  readonly plan: Plan;
  readonly facts: ExecFacts;
  /** True once it has ended by itself: killed for memory as a whole, or by somebody at the engine. */
  hasEnded(): boolean;
  /** Aborted when its programs have written more than they may; the cell is ended with that. */
  readonly overDisk: AbortSignal;
  /** The same looked at now: a command may have written faster than anybody looked. */
  isOverDisk(): Promise<boolean>;
}

/** The same pipeline as a run's: pinned sources, a plan, a cell that is verified before anything runs in it. */
export async function openCell(
  job: Job,
  stage: Stage,
  outputDir: string,
  serviceFor: (plan: Plan) => BrokerService,
  baseline: DiskBaseline,
  env: RunEnvironment,
  signal: AbortSignal,
): Promise<OpenCell> {
  const { sandbox } = stage;
  const run = newRunId();
  const broker = await openBroker(env.ownerDir, run);
  let cell: SessionCell | null = null;
  let watch: DiskWatch | null = null;
  const close = async (): Promise<void> => {
    try {
      await watch?.[Symbol.asyncDispose]();
      await cell?.[Symbol.asyncDispose]();
    } finally {
      await broker[Symbol.asyncDispose]();
    }
  };
  try {
    await using preparation = await prepare({ ...job, run }, sandbox, { ...broker, outputDir, views: stage }, env);
    if (!preparation.ok) throw refusal(preparation.violations);
    const { plan, pins } = preparation;
    const started = await env.driver.startSession({ plan, pins, signal, onOutput: () => {} });
    if (!started.ok) throw refusal(started.violations);
    const opened = started.cell;
    cell = opened;
    const watching = await watchDisk(plan, stage, pins, opened, {
      trouble: (detail) => env.emit({ type: "trouble", ...placeOf(job), detail }),
      baseline,
    });
    watch = watching;
    if (await watching.isExceeded()) throw new ToolRefusal("DISK_LIMIT", overDiskBefore(plan));
    const overDisk = watching.exceeded;
    // Also what a command left running behind it writes.
    overDisk.addEventListener("abort", () => void opened.kill("SIGKILL").catch(() => {}), { once: true });
    let hasEnded = false;
    void opened.exit.then(() => {
      hasEnded = true;
    });
    broker.serve(serviceFor(plan));
    env.emit({ type: "started", ...placeOf(job), plan });
    const facts = factsOf(plan, sandbox);
    return {
      cell: opened,
      plan,
      facts,
      hasEnded: () => hasEnded,
      overDisk,
      isOverDisk: () => watching.isExceeded(),
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function overDiskBefore({ limits }: Plan): string {
  const limit = formatBytes(limits.fileBytes);
  return `What was written so far is more than the limit of ${limit}. Delete some of it (delete_file) before you run commands.`;
}

function refusal(violations: Parameters<typeof describeAll>[0]): ToolRefusal {
  const described = describeAll(violations);
  const [first] = described;
  const code = described.length === 1 && first !== undefined ? first.code : "REFUSED";
  return new ToolRefusal(code, described.map(({ message }) => message).join("\n"), { violations: described });
}

function factsOf(plan: Plan, sandbox: Sandbox): ExecFacts {
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    readablePaths: mounts.map((mount) => mount.path),
    writablePaths: mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.path),
    constraints: sandbox.mounts
      .filter(({ suffixes, maxFileBytes }) => suffixes !== undefined || maxFileBytes !== undefined)
      .map(({ path, suffixes, maxFileBytes }) => ({ path: inCell(path, sandbox), suffixes, maxFileBytes })),
    workingDir: plan.workingDir,
    network: sandbox.network,
    memoryBytes: plan.limits.memoryBytes,
    timeoutMs: plan.limits.timeoutMs,
    outputBytes: plan.limits.outputBytes,
    diskBytes: plan.limits.fileBytes,
  };
}
