import { constants } from "node:os";
import type { Readable } from "node:stream";
import type { AgentDefinition, WorkerDefinition } from "../declarations/worker/worker.ts";
import { planLimits } from "../isolation/plan/plan-for.ts";
import type { Cell, CellExit } from "../isolation/port/cell.ts";
import { readAfterApproval, type Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { covers } from "../sandbox/virtual-path.ts";
import { present } from "../text/present.ts";
import { type CallRequest, nameViolations } from "./calls/call.ts";
import { Calls } from "./calls/calls.ts";
import { type OpenedCell, openCell, supervise, workerCell } from "./cell/open-cell.ts";
import { sandboxView } from "./cell/prepare.ts";
import { openRunNetwork, type RunNetwork } from "./cell/run-network.ts";
import { lentAttachments, openStage } from "./changes/lent-attachments.ts";
import { settledRun } from "./changes/settled-run.ts";
import { requestAccess, surroundingsOf, takingGiven } from "./grants/access-request.ts";
import type { GrantSurroundings } from "./grants/judge.ts";
import { requestGrant } from "./grants/request.ts";
import { learningNetwork } from "./grants/request-host.ts";
import type { RunEnvironment } from "./model/environment.ts";
import { emitRefusal } from "./model/events.ts";
import { Grantee } from "./model/grantee.ts";
import {
  type Attachment,
  BoundedOutput,
  type Continued,
  identityOf,
  inputBytes,
  inputViolations,
  type Job,
  newRunId,
  rootJob,
} from "./model/job.ts";
import { MaskedOutput } from "./model/masked-output.ts";
import { permissionOf, rootSandbox } from "./model/permission.ts";
import { type RunResult, refusedResult } from "./model/result.ts";
import { endedResult, keptRun, recordedRun } from "./recorded-run.ts";
import type { RunServices } from "./services/services.ts";
import { LazySession, type Session } from "./session/session.ts";
import type { SessionParts } from "./session/session-hands.ts";

/** A request of a user or a program: one worker of the project, run by itself. */
export interface RunRequest {
  readonly worker: WorkerDefinition;
  /** The words of its command that the user or the program gave, for the record. Absent: none. */
  readonly words?: readonly string[];
  /** JSON for the worker's standard input; `undefined`: none. */
  readonly input?: unknown;
  /** What its command reads on standard input after `input`. It is passed on as it comes, and kept nowhere. Absent: nothing. */
  readonly stdin?: Readable;
  readonly attachments?: readonly Attachment[];
  /** For an agent: the conversation of an earlier run. */
  readonly continues?: Continued;
  /** A policy in place of the project's. */
  readonly policy?: string;
  /** Asks about every host that the worker, or one that it calls, tries to reach. Absent: false. */
  readonly learnsNetwork?: boolean;
  /** Applies what the worker changed even if it fails, where this needs no further consent. Absent: false, and it waits. */
  readonly appliesFailed?: boolean;
  /** Cancels the run: it ends as `cancelled`, and nothing is left of it. */
  readonly signal: AbortSignal;
}

/** Runs a worker under the project. Every outcome is a result; it rejects only for a bug or a broken installation. */
export async function run(request: RunRequest, environment: RunEnvironment): Promise<RunResult> {
  const {
    worker,
    words = [],
    input,
    stdin,
    attachments = [],
    continues,
    learnsNetwork = false,
    appliesFailed = false,
    signal,
  } = request;
  const run = newRunId();
  const project = await rootSandbox(environment, request.policy ?? null, worker);
  const begun = { run, kind: "run", worker: worker.name, words, input, attachments } as const;
  const { env, stopped } = keptRun(
    continues === undefined ? begun : { ...begun, continues: continues.run },
    environment,
  );
  const violations = nameViolations(attachments);
  if (violations.length > 0) {
    const names = attachments.map(({ name }) => name);
    const earlier = continues === undefined ? {} : { continues: continues.run };
    const said = words.length === 0 ? {} : { arguments: words };
    const at = { run, root: run, parent: null, worker: worker.name, attachments: names, ...said, ...earlier };
    return emitRefusal(env.emit, at, violations);
  }
  const conversation = present({ continues });
  const asked = {
    run,
    worker,
    words,
    callerSandbox: project,
    input,
    ...(stdin === undefined ? {} : { stdin }),
    attachments,
    signal: AbortSignal.any([signal, stopped]),
    learnsNetwork,
    appliesFailed,
    ...conversation,
  };
  return await perform(rootJob(asked, env.project.delegation), env);
}

/** One run, started by a user, a program or another run. From here on the functions follow a run's steps in order. */
export async function perform(job: Job, env: RunEnvironment): Promise<RunResult> {
  return await recordedRun(job, env, () => permitted(job, env));
}

/** Step 1: its sandbox, derived from its caller's. */
async function permitted(job: Job, env: RunEnvironment): Promise<RunResult> {
  const who = { run: job.run, worker: job.worker.name };
  const derivation = await permissionOf(job.worker, job.callerSandbox, job.narrow, env);
  const violations = [...(derivation.ok ? [] : derivation.violations), ...(await inputViolations(job, env.schemas))];
  if (!derivation.ok || violations.length > 0) return refusedResult(who, violations);
  const learns = job.caller?.learns ?? job.learnsNetwork ?? false;
  return await staged(job, learns ? learningNetwork(derivation.sandbox) : derivation.sandbox, env);
}

/** Step 2: the views in which it writes what needs consent. After its end (step 4) its changes are settled. */
async function staged(job: Job, sandbox: Sandbox, env: RunEnvironment): Promise<RunResult> {
  const staging = await openStage(job, sandbox, env);
  if (!staging.ok) return refusedResult({ run: job.run, worker: job.worker.name }, staging.violations);
  await using stage = staging.stage;
  await using lent = await lentAttachments(job, stage.sandbox, env);
  if (!lent.ok) return refusedResult({ run: job.run, worker: job.worker.name }, lent.violations);
  const grantee = new Grantee(job, stage);
  const given = takingGiven(grantee, surroundingsOf(job, env), env.agreedBy, job.signal);
  await using _ = await env.grants.join(grantee, given);
  const parts = { job: { ...job, attachments: lent.attachments }, grantee, stage, env };
  return await settledRun(job, await networked(parts), stage, env);
}

type CellRunParts = Pick<SessionParts, "job" | "grantee" | "stage"> & { readonly env: RunEnvironment };

/** Its network and what runs beside it, which end with it. The result says what there was. */
async function networked(parts: CellRunParts): Promise<RunResult> {
  const { job, grantee, env } = parts;
  await using services = await servicesBeside(job, grantee, env);
  if (!services.ok) return refusedResult({ run: job.run, worker: job.worker.name }, services.violations);
  await using network = await openRunNetwork(job, grantee, env, services.cell);
  const { agent } = job.worker;
  const result =
    agent === undefined
      ? await planned(parts, network, services.ready)
      : await whenReady(services.ready, job, () => asAgent(parts, agent, network));
  // What is still on its way counts: it is closed first.
  await network[Symbol.asyncDispose]();
  const { error } = result;
  const why = error === null || services.ended.length === 0 ? "" : ` While it ran, ${services.ended.join(", and ")}.`;
  return {
    ...result,
    ...network.report(),
    ...(error === null ? {} : { error: { ...error, message: error.message + why } }),
  };
}

async function whenReady(ready: Ready, { run, worker }: Job, go: () => Promise<RunResult>): Promise<RunResult> {
  const violations = await ready();
  return violations.length > 0 ? refusedResult({ run, worker: worker.name }, violations) : await go();
}

type Ready = Extract<RunServices, { ok: true }>["ready"];

/** Few workers have services: what starts them is loaded for those alone. */
export async function servicesBeside(job: Job, grantee: Grantee, env: RunEnvironment): Promise<RunServices> {
  if (job.worker.services === undefined)
    return { ok: true, cell: null, ready: async () => [], ended: [], [Symbol.asyncDispose]: async () => {} };
  const { openServices } = await import("./services/services.ts");
  return await openServices(job, grantee, env);
}

/** Step 3 for an agent: it acts on the host's side of its sandbox, and gets a cell with its first command. */
async function asAgent({ job, grantee, stage, env }: CellRunParts, agent: AgentDefinition, network: RunNetwork) {
  const { agentRun } = await import("./agent/agent-run.ts");
  return await agentRun(job, agent, {
    grantee,
    stage,
    env,
    meter: network.meter,
    perform: (called) => perform(called, env),
    openSession: (own, call) => openedSession({ job: own, grantee, stage, network, env, call, standalone: true }),
  });
}

/** Step 3 for a command: a verified cell, released when what runs beside it is ready and it is this job's turn, and supervised until it ends. */
async function planned(
  { job, grantee, stage, env }: CellRunParts,
  network: RunNetwork,
  ready: Ready,
): Promise<RunResult> {
  const owner = identityOf(job);
  const unread = await readingRefused(grantee, surroundingsOf(job, env), job.signal);
  if (unread.length > 0) return refusedResult({ run: job.run, worker: job.worker.name }, unread);
  const { output, flooded } = printing(job, stage.sandbox, env);
  const masked = new MaskedOutput(env.masking, job.root, (stream, chunk) => output.add(stream, chunk));
  const kind = workerCell(stage, (stream, chunk) => masked.add(stream, chunk));
  const { sandbox } = stage;
  const { accept, follow, services, meter } = network;
  const turn = async (): Promise<readonly Violation[]> => {
    const unready = await ready();
    if (unready.length === 0) await job.turn?.();
    return unready;
  };
  const request = { job, sandbox, kind, owner, signal: job.signal, accept, follow, services, turn };
  await using opened = await openCell(request, env);
  if (!opened.ok) return refusedResult({ run: job.run, worker: job.worker.name }, opened.violations);
  const { plan, pins } = opened;

  const begunAt = env.now();
  const deadline = Math.min(job.deadline, begunAt + plan.limits.timeoutMs);
  await using calls = new Calls({
    job,
    grantee,
    pins,
    deadline,
    meter,
    env,
    perform: (called) => perform(called, env),
  });
  const call = (request: CallRequest, signal: AbortSignal): Promise<RunResult> => calls.call(request, signal);
  const parts = { job: { ...job, deadline }, grantee, stage, network, env, call, standalone: false };
  await using session = new LazySession(() => openedSession(parts));
  const cell = opened.begin(owner, {
    call,
    tool: (name, input, signal) => session.runTool(name, input, signal),
    access: (request, signal) => requestAccess(request, grantee, surroundingsOf(job, env), signal, null),
    sandbox: () => sandboxView(job, grantee.sandbox, plan),
    trouble: (detail) => env.emit({ type: "trouble", ...owner, detail }),
  });
  cell.release(inputBytes(job.input), job.stdin);
  const bounds = { timeoutMs: deadline - begunAt, signal: job.signal, flooded, overDisk: opened.overDisk };
  const { exit, stopped: reason } = await supervise(cell, bounds);
  masked.end();
  const stopped = reason ?? ((await opened.isOverDisk()) || (await isFileTooLarge(exit, opened)) ? "disk_limit" : null);
  const made = await calls.end();

  if (exit.kind === "lost") env.emit({ type: "trouble", ...owner, detail: exit.reason });
  const ended = { exit, stopped, output, enforcement: cell.enforcement, calls: made };
  return await endedResult(job.worker, plan, ended, env.schemas);
}

/** The kernel sends SIGXFSZ to who writes a file beyond its limit, which is that of all files: the file is as large then. */
async function isFileTooLarge(exit: CellExit, opened: Pick<OpenedCell<Cell>, "isDiskFull">): Promise<boolean> {
  if (exit.kind !== "exited" || exit.bySignal === false) return false;
  return exit.code === 128 + constants.signals.SIGXFSZ && (await opened.isDiskFull());
}

/** The tools and what they need are loaded for a run that uses them: they would double the start of every other run. */
async function openedSession(parts: SessionParts): Promise<Session> {
  const { Session } = await import("./session/session.ts");
  return await Session.open(parts);
}

/** Keeps what the worker prints, up to the limit, and reports it as it comes. `flooded` is aborted when it prints more. */
function printing(job: Job, sandbox: Sandbox, env: RunEnvironment) {
  const flood = new AbortController();
  const output = new BoundedOutput(
    planLimits(sandbox).outputBytes,
    (stream, chunk) => env.emit({ type: "output", ...identityOf(job), stream, chunk }),
    () => flood.abort(),
  );
  return { output, flooded: flood.signal };
}

/**
 * Asks, before a command starts, for every directory of its own whose reading needs consent: its container is made once and
 * shows nothing later. What is blocked is not asked for and not shown. Returns what the user did not agree to.
 */
export async function readingRefused(
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<Violation[]> {
  const waiting = readAfterApproval(grantee.sandbox);
  const outer = waiting.filter((path) => !waiting.some((other) => other !== path && covers(other, path)));
  for (const path of outer) {
    const need = { path, mode: "read", why: "to run its command with this directory", lastingOnly: true } as const;
    const outcome = await requestGrant(need, grantee, around, signal);
    if (!outcome.ok) return [{ code: "READ_NOT_APPROVED", path, reason: outcome.refusal.because }];
    if (outcome.scope === "once")
      return [{ code: "READ_NOT_APPROVED", path, reason: "It was approved for one operation only." }];
  }
  return [];
}
