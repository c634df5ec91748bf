import { existsSync, fstatSync, statSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { Readable } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { TranscriptFolder } from "../../agent/transcript.ts";
import { noTerminal } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import type { EnginePort } from "../../isolation/port/engine.ts";
import { runWorker, type WorkerRun } from "../../operations/workers.ts";
import { codeOf } from "../../platform/errno.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { GrantRecord } from "../../run/model/grantee.ts";
import type { RunResult } from "../../run/model/result.ts";
import { openCorralFor, openCorralLater } from "../../run/open/corral.ts";
import { policiesOf } from "../../run/open/options.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { type ElsewhereOptions, personAt, tellSuggestion, waitingBy } from "../consent/person.ts";
import { declaredWorker, type NamedWork } from "../declared/declared-worker.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, exitStatusOf, type RunScreen, type Stop, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { attachedPaths, attachedTreeOf, readInput } from "./attachments.ts";
import { screenFor } from "./screen.ts";

/** Who learns from such work what it wants to reach, lets it write the list by which it is judged. */
const NEVER = ["untrusted", "ci"];

export interface LearnRequest {
  readonly policy?: string;
  readonly approve?: ApprovalMode;
}

/** `--learn-network`: if there is nothing to learn, or no user to ask, the error comes before anything runs. */
export async function refuseLearning(
  worker: WorkerDefinition,
  project: Project,
  { policy, approve = project.approval.mode }: LearnRequest,
  { stdin, stderr }: Terminal,
): Promise<void> {
  if (!stdin.isTTY || !stderr.isTTY)
    throw new UsageError("--learn-network asks the user about each host, and there is no terminal");
  if (approve !== "interactive")
    throw new UsageError(`--learn-network asks the user about each host, but the approval mode is ${approve}`);
  if (worker.needs.network === true)
    throw new UsageError(`--learn-network has nothing to ask: ${worker.name} has \`network: true\``);
  const policyNamed = policiesOf(project);
  for (const name of new Set([
    policy ?? project.policyName,
    ...(worker.policyName === null ? [] : [worker.policyName]),
  ])) {
    if (NEVER.includes(name) || (await policyNamed(name)).network === false)
      throw new UsageError(
        `--learn-network is refused under the policy ${name}; write what its workers may reach yourself`,
      );
  }
}

export interface RunOptions extends Omit<NamedWork, "worker">, ElsewhereOptions {
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
  const stdin = isImplied && input === undefined ? passedInput(terminal) : null;
  const files = await attachedPaths(options.attach, terminal.cwd);
  using screen = await screenFor(terminal, options);
  using stop = stoppable(terminal, (line) => screen.tell(line), { whileRead: true });
  const where = { cwd: terminal.cwd, signal: stop.signal };
  await using tree = options.attachTree === undefined ? null : await attachedTreeOf(options.attachTree, files, where);
  const attachments = [...files, ...(tree?.attachments ?? [])];
  const { result, grants } = await ran(
    { worker, words: options.words ?? [], input, ...(stdin === null ? {} : { stdin }), attachments, policy },
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
  return stop.isUnread() ? EXIT.unread : exitStatusOf(result);
}

/**
 * What a command without a declaration reads, as it would without Corral. Null at a terminal, on which Corral itself may ask, and which `corral shell`
 * passes on; and where there is nothing to read.
 */
function passedInput(terminal: Terminal): Readable | null {
  const { stdin } = terminal;
  if (stdin.isTTY || isDevNull(stdin)) return null;
  // What cannot be read, such as a directory, ends there.
  return stdin.on("error", (error) => say(terminal, `corral: standard input cannot be read: ${error.message}`));
}

function isDevNull({ fd }: NodeJS.ReadStream & { readonly fd?: number }): boolean {
  return fd !== undefined && fstatSync(fd).rdev === statSync("/dev/null").rdev;
}

/** The one command or option that leads on, for someone who has no files in which to look. */
function tellWay({ changeset, violations, exitCode, stderr }: RunResult, policy: string, terminal: Terminal): void {
  const absent = exitCode === 127 ? notFoundIn(stderr) : null;
  if (absent !== null)
    say(terminal, `corral: the image has no ${absent}: take another one, or add its package of Debian with --apt`);
  if (changeset?.id != null) say(terminal, `corral: review and apply it with \`corral changes apply ${changeset.id}\``);
  if (violations.some(({ code }) => code === "NETWORK_NOT_AVAILABLE"))
    say(
      terminal,
      `corral: the policy ${policy} allows no network; if you trust the command with one, use --policy default`,
    );
}

/** The program that a shell did not find, by its last words. They are the worker's, so no more than a name is taken of them. */
function notFoundIn(stderr: string): string | null {
  const last = stderr.trimEnd().split("\n").at(-1) ?? "";
  return /(?:^|: )([\w.+-]{1,60}): (?:command )?not found$/.exec(last)?.[1] ?? null;
}

interface Surroundings {
  readonly terminal: Terminal;
  readonly engine: Promise<EnginePort>;
  readonly screen: RunScreen;
  readonly stop: Stop;
}

async function ran(
  what: Pick<WorkerRun, "worker" | "words" | "input" | "stdin" | "attachments" | "policy">,
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
  // An agent's cell starts with its first command.
  const isAgent = what.worker.agent !== undefined;
  await using corral = isAgent
    ? await openCorralLater(project, opening, () => engine)
    : await openCorralFor(project, opening, engine);
  const { environment, reapTrouble } = corral;
  if (reapTrouble !== null) screen.tell(`corral: not everything could be reaped: ${reapTrouble}`);
  const earlier = present({ continues: options.continue });
  const how = { cwd: terminal.cwd, learnsNetwork: options.learnNetwork ?? false };
  const appliesFailed = options.applyFailed ?? false;
  const request = { ...what, ...earlier, ...how, appliesFailed, signal: stop.signal };
  const result = await runWorker(request, environment);
  return { result, grants: environment.grants.told };
}

/** `--record`: if recording is not possible, the error comes before anything runs. */
function refuseRecording(file: string, { name, agent }: WorkerDefinition, { cwd }: Terminal): void {
  if (agent === undefined) throw new UsageError(`--record works only with agents, and ${name} is a command`);
  if (!file.endsWith(".jsonl"))
    throw new UsageError("--record writes lines of JSON: choose a file name that ends in .jsonl");
  if (existsSync(resolve(cwd, file))) throw new UsageError(`--record does not overwrite files, and ${file} exists`);
}

/** The transcript as the run left it. The run has ended: an error now is reported and does not change its status. */
async function recordRun(file: string, { run }: RunResult, { dir }: Project, terminal: Terminal): Promise<void> {
  const lines = await new TranscriptFolder(stateDirFrom(terminal.env), dir).read(run);
  if (lines === null) return say(terminal, "corral: nothing to record: the agent did not start");
  try {
    await writeFile(resolve(terminal.cwd, file), lines, { flag: "wx", mode: 0o600 });
  } catch (error) {
    const code = codeOf(error);
    say(terminal, `corral: nothing is recorded in ${file} (${code}); \`corral transcripts show ${run} --json\` has it`);
  }
}
