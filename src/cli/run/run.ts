import { setImmediate } from "node:timers/promises";
import { noTerminal } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import type { EnginePort } from "../../isolation/port/engine.ts";
import type { AttachedTree } from "../../operations/attached-tree.ts";
import { runWorker, type WorkerRun } from "../../operations/workers.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { GrantRecord } from "../../run/model/grant.ts";
import type { RunResult } from "../../run/model/result.ts";
import { openCorralFor } from "../../run/open/corral.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { type ElsewhereOptions, personAt, tellSuggestion, waitingBy } from "../consent/person.ts";
import { type Asked, declaredWorker } from "../declared/declared-worker.ts";
import { exitStatusOf } from "../terminal/exit-status.ts";
import type { RunScreen } from "../terminal/screen.ts";
import { type Stop, stoppable } from "../terminal/stop.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { attachedPaths, type NamedPath } from "./attachments.ts";
import { readInput } from "./input.ts";
import { refuseLearning } from "./learned-network.ts";
import { recordRun, refuseRecording } from "./recorded-run.ts";
import { screenFor } from "./run-screen.ts";

export interface RunOptions extends Omit<Asked, "worker">, ElsewhereOptions {
  readonly input?: string;
  readonly attach: readonly string[];
  /** A commit whose files are attached as an archive. */
  readonly attachTree?: string;
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

/** `corral run`; without a name, the command of the options. The exit status is the worker's own, or one that says why there is none. */
export async function runVerb(name: string | undefined, options: RunOptions, terminal: Terminal): Promise<number> {
  // The Engine is asked while the project is read; errors of the project are reported first.
  const engine = openEngine({ stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env });
  await setImmediate();
  const [declared] = await Promise.allSettled([declaredWorker({ ...options, worker: name }, terminal), engine]);
  if (declared.status === "rejected") throw declared.reason;
  const { project, worker, policy, isImplied } = declared.value;
  if (options.record !== undefined) refuseRecording(options.record, worker, terminal);
  if (options.learnNetwork) await refuseLearning(worker, project, options, terminal);
  const input = await readInput(options.input, terminal);
  const files = await attachedPaths(options.attach, terminal.cwd);
  using screen = await screenFor(terminal, options);
  using stop = stoppable(terminal, (line) => screen.tell(line));
  await using tree = await treeOf(options.attachTree, files, { cwd: terminal.cwd, signal: stop.signal });
  const attachments = [...files, ...(tree?.attachments ?? [])];
  const { result, grants } = await ran(
    { worker, words: options.words ?? [], input, attachments, policy },
    project,
    options,
    {
      terminal,
      engine,
      screen,
      stop,
    },
  );
  // Only now: the Engine has nothing of the run any more, and the reader of the result can rely on that.
  screen.end(result);
  if (terminal.env.GITHUB_STEP_SUMMARY)
    await (await import("../github/step-summary.ts")).addRunToStepSummary(result, terminal);
  if (options.record !== undefined) await recordRun(options.record, result, project, terminal);
  if (isImplied) tellWay(result, project.policyName, terminal);
  else await tellSuggestion(project, options.project, grants, terminal);
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

/** The one command or option that leads on, for someone who has no files in which to look. */
function tellWay({ changeset, violations }: RunResult, policy: string, terminal: Terminal): void {
  if (changeset?.id != null) say(terminal, `corral: review and apply it with \`corral changes apply ${changeset.id}\``);
  if (violations.some(({ code }) => code === "NETWORK_NOT_AVAILABLE"))
    say(
      terminal,
      `corral: the policy ${policy} allows no network; if you trust the command with one, use --policy default`,
    );
}

interface Surroundings {
  readonly terminal: Terminal;
  readonly engine: Promise<EnginePort>;
  readonly screen: RunScreen;
  readonly stop: Stop;
}

async function ran(
  what: Pick<WorkerRun, "worker" | "words" | "input" | "attachments" | "policy">,
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
    ...(options.approve === undefined || options.apply ? {} : { approvalMode: options.approve }),
    person: person ?? noTerminal,
    ...waitingBy(options, (line) => screen.tell(line)),
  };
  await using corral = await openCorralFor(project, opening, engine);
  const { environment, reapTrouble } = corral;
  if (reapTrouble !== null) screen.tell(`corral: not everything could be reaped: ${reapTrouble}`);
  const earlier = options.continue === undefined ? {} : { continues: options.continue };
  const how = { cwd: terminal.cwd, learnsNetwork: options.learnNetwork ?? false };
  const appliesFailed = options.applyFailed ?? false;
  const request = { ...what, ...earlier, ...how, appliesFailed, signal: stop.signal };
  const result = await runWorker(request, environment);
  return { result, grants: environment.grants.told };
}
