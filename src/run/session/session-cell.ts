import type { Stage } from "../../changes/stage.ts";
import type { DiskBaseline } from "../../isolation/disk/disk-baseline.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import type { SessionCell } from "../../isolation/port/exec.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { formatBytes } from "../../sandbox/units.ts";
import type { ExecFacts } from "../../tools/exec-hints/wording.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { BrokerService } from "../cell/broker.ts";
import { sessionCell } from "../cell/cell-kinds.ts";
import { type OpenedCell, openCell } from "../cell/open-cell.ts";
import { inCell } from "../model/cell-path.ts";
import type { CellHost, Records } from "../model/environment.ts";
import { identityOf, type Job, newRunId } from "../model/job.ts";
import { describeAll, refusalError } from "../model/result.ts";
import type { OutputDir } from "./output-dir.ts";

export interface SessionCellRequest {
  readonly job: Job;
  readonly env: CellHost & Records;
  /** Where commands' long output is kept on the host. */
  readonly output: OutputDir;
  /** The usage before the session's first cell: all its cells and the tools share one disk limit. */
  readonly baseline: DiskBaseline;
  /** Its sandbox may change between two cells. */
  readonly stage: Stage;
  readonly serviceFor: (plan: Plan) => BrokerService;
}

/** A session's cell, which waits for commands; disposing removes it and its socket. */
export interface OpenSessionCell
  extends Pick<OpenedCell<SessionCell>, "plan" | "hasEnded" | "overDisk" | "isOverDisk" | "kill">,
    AsyncDisposable {
  readonly cell: SessionCell;
  readonly facts: ExecFacts;
}

/** Rejects with `ToolRefusal` if there can be no such cell. */
export async function openSessionCell(
  { job, stage, output, baseline, serviceFor, env }: SessionCellRequest,
  signal: AbortSignal,
): Promise<OpenSessionCell> {
  const { sandbox } = stage;
  const owner = identityOf(job);
  const kind = sessionCell(stage, output.path, baseline);
  const opened = await openCell({ job: { ...job, run: newRunId() }, sandbox, kind, owner, signal }, env);
  if (!opened.ok) throw refusal(opened.violations);
  try {
    const { plan } = opened;
    if (await opened.isOverDisk()) throw new ToolRefusal("DISK_LIMIT", overDiskBefore(plan));
    const cell = opened.begin(owner, serviceFor(plan));
    return { ...opened, cell, facts: factsOf(plan, sandbox) };
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

function overDiskBefore({ limits }: Plan): string {
  const limit = formatBytes(limits.diskBytes);
  return `The run has written more than its disk limit of ${limit}. Delete files (delete_file) before you run commands.`;
}

function refusal(violations: Parameters<typeof describeAll>[0]): ToolRefusal {
  const described = describeAll(violations);
  const { code, message } = refusalError(described);
  return new ToolRefusal(code, message, { violations: described });
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
    diskBytes: plan.limits.diskBytes,
  };
}
