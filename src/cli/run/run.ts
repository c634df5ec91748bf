import { noTerminal } from "../../approval/approver.ts";
import { loadProject, type Project } from "../../declarations/project.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import type { EnginePort } from "../../isolation/port/engine.ts";
import type { AttachedTree } from "../../operations/attached-tree.ts";
import { runWorker, type WorkerRun, workerNamed } from "../../operations/workers.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { GrantRecord } from "../../run/model/grant.ts";
import type { RunResult } from "../../run/model/result.ts";
import { openCorralFor } from "../../run/open/corral.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { personAt, tellSuggestion } from "../consent/person.ts";
import { exitStatusOf } from "../terminal/exit-status.ts";
import type { RunScreen } from "../terminal/screen.ts";
import { type Stop, stoppable } from "../terminal/stop.ts";
import type { Terminal } from "../terminal/terminal.ts";
import { attachedPaths, type NamedPath } from "./attachments.ts";
import { readInput } from "./input.ts";
import { refuseLearning } from "./learned-network.ts";
import { recordRun, refuseRecording } from "./recorded-run.ts";
import { screenFor } from "./run-screen.ts";

export interface RunOptions {
  readonly project: string;
  readonly input?: string;
  readonly attach: readonly string[];
  /** A commit whose files are attached as an archive. */
  readonly attachTree?: string;
  readonly policy?: string;
  readonly approve?: ApprovalMode;
  readonly tree?: boolean;
  readonly stream?: boolean;
  /** Where an agent's conversation is written to, to be played again. */
  readonly record?: string;
  /** The id of an agent's earlier run. */
  readonly continue?: string;
  readonly learnNetwork?: boolean;
  /** What a failed worker wrote is applied, too. */
  readonly applyFailed?: boolean;
  readonly json?: boolean;
}

/** `corral run`. The exit status is the worker's own, or one that says why there is none. */
export async function runVerb(name: string, options: RunOptions, terminal: Terminal): Promise<number> {
  // The Engine is asked while the project is read; errors of the project are reported first.
  const engine = openEngine({ stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env });
  const [loaded] = await Promise.allSettled([loadProject(options.project, terminal.env), engine]);
  if (loaded.status === "rejected") throw loaded.reason;
  const project = loaded.value;
  const worker = workerNamed(name, project);
  if (options.record !== undefined) refuseRecording(options.record, worker, terminal);
  if (options.learnNetwork) await refuseLearning(worker, project, options, terminal);
  const input = await readInput(options.input, terminal);
  const files = await attachedPaths(options.attach, terminal.cwd);
  using screen = await screenFor(terminal, options);
  using stop = stoppable(terminal, (line) => screen.tell(line));
  await using tree = await treeOf(options.attachTree, files, { cwd: terminal.cwd, signal: stop.signal });
  const attachments = [...files, ...(tree?.attachments ?? [])];
  const { result, grants } = await ran({ worker, input, attachments }, project, options, {
    terminal,
    engine,
    screen,
    stop,
  });
  // Only now: the Engine has nothing of the run any more, and the reader of the result can rely on that.
  screen.end(result);
  if (options.record !== undefined) await recordRun(options.record, result, project, terminal);
  await tellSuggestion(project, options.project, grants, terminal);
  return exitStatusOf(result);
}

/** Few runs attach a tree, and git is loaded only for these. */
async function treeOf(
  commit: string | undefined,
  others: readonly NamedPath[],
  where: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<AttachedTree | null> {
  if (commit === undefined) return null;
  const { attachedTreeOf } = await import("./attached-tree.ts");
  return await attachedTreeOf(commit, others, where);
}

interface Surroundings {
  readonly terminal: Terminal;
  readonly engine: Promise<EnginePort>;
  readonly screen: RunScreen;
  readonly stop: Stop;
}

async function ran(
  what: Pick<WorkerRun, "worker" | "input" | "attachments">,
  project: Project,
  options: RunOptions,
  around: Surroundings,
): Promise<{ readonly result: RunResult; readonly grants: readonly GrantRecord[] }> {
  const { terminal, engine, screen, stop } = around;
  const person = personAt(project, around);
  const opening = {
    stateDir: stateDirFrom(terminal.env),
    engineEnv: terminal.env,
    emit: (event: RunEvent) => screen.see(event),
    ...(options.approve === undefined ? {} : { approvalMode: options.approve }),
    person: person ?? noTerminal,
  };
  await using corral = await openCorralFor(project, opening, engine);
  const { environment, reapTrouble } = corral;
  if (reapTrouble !== null) screen.tell(`corral: not everything could be reaped: ${reapTrouble}`);
  const earlier = options.continue === undefined ? {} : { continues: options.continue };
  const how = { cwd: terminal.cwd, policy: options.policy ?? null, learnsNetwork: options.learnNetwork ?? false };
  const appliesFailed = options.applyFailed ?? false;
  const request = { ...what, ...earlier, ...how, appliesFailed, signal: stop.signal };
  const result = await runWorker(request, environment);
  return { result, grants: environment.grants.told };
}
