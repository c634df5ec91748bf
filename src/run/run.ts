import type { Cell } from "../isolation/cell.ts";
import { EngineTrouble } from "../isolation/driver.ts";
import type { WorkerDefinition } from "../project/worker.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { openBroker } from "./broker.ts";
import { type CallRequest, nameViolations } from "./call.ts";
import { Calls } from "./calls.ts";
import { consentFor } from "./consent.ts";
import { endedResult } from "./ended.ts";
import type { RunEnvironment } from "./environment.ts";
import { type Attachment, inputBytes, type Job, newRunId, placeOf, rootJob } from "./job.ts";
import { BoundedOutput } from "./output.ts";
import { permissionOf, rootSandbox } from "./permission.ts";
import { prepare } from "./prepare.ts";
import { deniedResult, refusedResult, unstartedResult } from "./refusal.ts";
import type { RunResult } from "./result.ts";
import { sandboxView } from "./sandbox-view.ts";
import { LazySession } from "./session/lazy-session.ts";
import { supervise } from "./supervise.ts";

/** What a person or a program asks for: one worker of the project, run by itself. */
export interface RunRequest {
  readonly worker: WorkerDefinition;
  /** JSON for the worker's standard input; `undefined`: none. */
  readonly input?: unknown;
  readonly attachments?: readonly Attachment[];
  /** A policy in place of the project's. */
  readonly policy?: string;
  readonly signal: AbortSignal;
}

/** Runs a worker under the project. Every outcome is a result; it rejects only for a bug or a broken set-up. */
export async function run(request: RunRequest, env: RunEnvironment): Promise<RunResult> {
  const { worker, input, attachments = [], signal } = request;
  const run = newRunId();
  const project = await rootSandbox(env, request.policy ?? null);
  const violations = [...(project.ok ? [] : project.violations), ...nameViolations(attachments)];
  if (!project.ok || violations.length > 0) return refuseRoot({ run, worker: worker.name }, violations, request, env);
  const asked = { run, worker, callerSandbox: project.sandbox, input, attachments, signal };
  return await perform(rootJob(asked, env.project.delegation), env);
}

function refuseRoot(
  who: { run: string; worker: string },
  violations: readonly Violation[],
  { attachments = [] }: RunRequest,
  env: RunEnvironment,
): RunResult {
  const at = { ...who, root: who.run, parent: null, attachments: attachments.map(({ name }) => name) };
  const result = refusedResult(who, violations);
  env.emit({ type: "requested", ...at });
  env.emit({ type: "ended", ...at, result });
  return result;
}

/** One run, made by a person or called by another run. */
export async function perform(job: Job, env: RunEnvironment): Promise<RunResult> {
  env.emit({ type: "requested", ...placeOf(job) });
  const requestedAt = env.now();
  const outcome = await outcomeOf(job, env);
  const result = { ...outcome, durationMs: Math.round(env.now() - requestedAt) };
  env.emit({ type: "ended", ...placeOf(job), result });
  return result;
}

async function outcomeOf(job: Job, env: RunEnvironment): Promise<RunResult> {
  const unstarted = (status: "cancelled" | "lost", code: string, message: string): RunResult =>
    unstartedResult({ run: job.run, worker: job.worker.name }, status, { code, message });
  try {
    // A call may have waited for its turn until nobody wants it any more.
    job.signal.throwIfAborted();
    return await permitted(job, env);
  } catch (error) {
    if (job.signal.aborted)
      return unstarted("cancelled", "CANCELLED", "The run was cancelled before its worker began.");
    if (!(error instanceof EngineTrouble)) throw error;
    env.emit({ type: "trouble", ...placeOf(job), detail: error.message });
    return unstarted("lost", "ENGINE_TROUBLE", "The container engine failed; this says nothing about the worker.");
  }
}

/** Its sandbox, derived from its caller's, and the consent that it needs. */
async function permitted(job: Job, env: RunEnvironment): Promise<RunResult> {
  const who = { run: job.run, worker: job.worker.name };
  if (job.worker.command === null)
    return refusedResult(who, [{ code: "AGENT_NOT_SUPPORTED", worker: job.worker.name }]);
  const derivation = await permissionOf(job.worker, job.callerSandbox, job.narrow, env);
  if (!derivation.ok) return refusedResult(who, derivation.violations);
  const consent = await consentFor(job, derivation.sandbox, env);
  if (!consent.ok) return deniedResult(who, consent.decision, consent.paths);
  return await planned(job, consent.sandbox, env);
}

/** Its plan, and the verified cell that the plan becomes. */
async function planned(job: Job, sandbox: Sandbox, env: RunEnvironment): Promise<RunResult> {
  const who = { run: job.run, worker: job.worker.name };
  await using broker = await openBroker(env.ownerDir, job.run);
  await using preparation = await prepare(job, sandbox, broker, env);
  if (!preparation.ok) return refusedResult(who, preparation.violations);
  const { plan, pins } = preparation;

  const flooded = new AbortController();
  const output = new BoundedOutput(
    plan.limits.outputBytes,
    (stream, kept) => {
      env.emit({ type: "output", ...placeOf(job), stream, chunk: kept });
    },
    () => flooded.abort(),
  );
  const started = await env.driver.start({
    plan,
    pins,
    signal: job.signal,
    onOutput: (stream, chunk) => output.add(stream, chunk),
  });
  if (!started.ok) return refusedResult(who, started.violations);
  const { cell } = started;
  await using _ = removalOf(cell, (detail) => env.emit({ type: "trouble", ...placeOf(job), detail }));

  env.emit({ type: "started", ...placeOf(job), plan });
  const begunAt = env.now();
  const deadline = Math.min(job.deadline, begunAt + plan.limits.timeoutMs);
  await using calls = new Calls(job, sandbox, pins, deadline, env, perform);
  const call = (request: CallRequest, signal: AbortSignal): Promise<RunResult> => calls.call(request, signal);
  await using session = new LazySession({ ...job, deadline }, sandbox, env, call);
  broker.serve({
    call,
    tool: (name, input, signal) => session.runTool(name, input, signal),
    sandbox: () => sandboxView(job, sandbox, plan),
  });
  const { exit, stopped } = await worked(cell, job, { timeoutMs: deadline - begunAt, flooded: flooded.signal });
  const made = await calls.end();

  if (exit.kind === "lost") env.emit({ type: "trouble", ...placeOf(job), detail: exit.reason });
  return endedResult(job.worker, plan, { exit, stopped, output, enforcement: cell.enforcement, calls: made });
}

/**
 * The cell's removal. Where the engine fails at that, a person is told; what became of the worker is known by then and
 * stays true.
 */
function removalOf(cell: Cell, trouble: (detail: string) => void): AsyncDisposable {
  return {
    async [Symbol.asyncDispose]() {
      try {
        await cell[Symbol.asyncDispose]();
      } catch (error) {
        if (!(error instanceof EngineTrouble)) throw error;
        trouble(error.message);
      }
    },
  };
}

/** The worker itself: from its first instruction until it ends, or is ended. */
async function worked(cell: Cell, job: Job, bounds: { timeoutMs: number; flooded: AbortSignal }) {
  cell.release(inputBytes(job.input));
  return await supervise(cell, { ...bounds, signal: job.signal });
}
