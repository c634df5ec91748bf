import type { Stage } from "../../changes/stage.ts";
import { MAX_STAGED_DEPTH } from "../../changes/view/base-tree.ts";
import type { NotShown } from "../../files/model/files.ts";
import { countNotShown } from "../../files/namespace.ts";
import type { DiskBaseline } from "../../isolation/disk/disk-watch.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import { canStartCommands } from "../../isolation/plan/plan-for.ts";
import type { SessionCell } from "../../isolation/port/cell.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { formatBytes } from "../../text/amounts.ts";
import type { ExecFacts } from "../../tools/exec-hints/wording.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { BrokerService } from "../cell/broker.ts";
import { type OpenedCell, openCell, sessionCell } from "../cell/open-cell.ts";
import type { RunNetwork } from "../cell/run-network.ts";
import type { CellHost, Records } from "../model/environment.ts";
import { identityOf, inCell, type Job, newRunId } from "../model/job.ts";
import { maskedSession } from "../model/masked-output.ts";
import { describeAll, refusalError } from "../model/result.ts";
import type { OutputDir } from "./write-room.ts";

export interface SessionCellRequest {
  readonly job: Job;
  readonly env: CellHost & Records;
  /** Where commands' long output is kept on the host. */
  readonly output: OutputDir;
  /** The usage before the session's first cell: all its cells and the tools share one disk limit. */
  readonly baseline: DiskBaseline;
  /** Its sandbox may change between two cells. */
  readonly stage: Stage;
  readonly network: RunNetwork;
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
  { job, stage, network, output, baseline, serviceFor, env }: SessionCellRequest,
  signal: AbortSignal,
): Promise<OpenSessionCell> {
  const { sandbox } = stage;
  const owner = identityOf(job);
  const pipes = canStartCommands(sandbox) ? { commandsDir: output.pipes } : {};
  const kind = sessionCell(stage, { outputDir: output.path, ...pipes }, baseline);
  const opened = await openCell(
    { job: { ...job, run: newRunId() }, sandbox, kind, owner, signal, accept: network.accept, follow: network.follow },
    env,
  );
  if (!opened.ok) throw refusal(opened.violations);
  try {
    const { plan } = opened;
    if (await opened.isOverDisk()) throw new ToolRefusal("DISK_LIMIT", overDiskBefore(plan));
    const cell = maskedSession(opened.begin(owner, serviceFor(plan)), env.masking, owner.root);
    return { ...opened, cell, facts: factsOf(plan, sandbox, await notShownIn(stage)) };
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

/** What the views leave out, by the path of the mount. */
async function notShownIn({ sandbox, hidden, paths }: Stage): Promise<Map<string, NotShown>> {
  const counts = new Map<string, NotShown>();
  for (const path of paths) counts.set(path, await countNotShown(sandbox, hidden.below(path, MAX_STAGED_DEPTH)));
  return counts;
}

function factsOf(plan: Plan, sandbox: Sandbox, notShown: ReadonlyMap<string, NotShown>): ExecFacts {
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    readablePaths: mounts.map((mount) => mount.path),
    writablePaths: mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.path),
    constraints: sandbox.mounts
      .filter(({ suffixes, maxFileBytes }) => suffixes !== undefined || maxFileBytes !== undefined)
      .map(({ path, suffixes, maxFileBytes }) => ({
        path: inCell(path, sandbox),
        suffixes,
        maxFileBytes,
        notShown: notShown.get(path),
      })),
    workingDir: plan.workingDir,
    network: sandbox.network,
    memoryBytes: plan.limits.memoryBytes,
    timeoutMs: plan.limits.timeoutMs,
    outputBytes: plan.limits.outputBytes,
    diskBytes: plan.limits.diskBytes,
  };
}
