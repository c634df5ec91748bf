import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Enforcement } from "../isolation/plan/enforcement.ts";
import type { Plan } from "../isolation/plan/plan.ts";
import type { CellExit } from "../isolation/port/cell.ts";
import { EngineTrouble } from "../isolation/port/driver.ts";
import { parseJson } from "../json/parse-json.ts";
import { isHostTrouble } from "../platform/errno.ts";
import { formatBytes, formatDuration } from "../text/amounts.ts";
import type { Records, RunEnvironment } from "./model/environment.ts";
import type { BegunRun, RunHistory } from "./model/history.ts";
import { type BoundedOutput, identityOf, type Job, outputError, type SchemaChecks } from "./model/job.ts";
import {
  brokenResult,
  type Ending,
  endingOf,
  type RunError,
  type RunResult,
  type StopReason,
  unstartedResult,
} from "./model/result.ts";
import { maskedEmit } from "./recorded/emit.ts";

/**
 * Runs a job by `act`, and reports it from its request to its end. Every outcome is a result, also a failure of the engine
 * and a cancellation. It rejects only for a bug, which is then the caller's to report; the run is recorded as lost.
 */
export async function recordedRun(job: Job, env: Records, act: () => Promise<RunResult>): Promise<RunResult> {
  env.emit({ type: "requested", ...identityOf(job) });
  const requestedAt = env.now();
  const outcome = await outcomeOf(job, env, act).catch((error: unknown) => {
    env.emit({ type: "ended", ...identityOf(job), result: brokenResult({ run: job.run, worker: job.worker.name }) });
    if (job.parent === null) env.masking.release(job.root);
    throw error;
  });
  const result = env.masking.value(job.root, { ...outcome, durationMs: Math.round(env.now() - requestedAt) });
  env.emit({ type: "ended", ...identityOf(job), result });
  if (job.parent === null) env.masking.release(job.root);
  return result;
}

async function outcomeOf(job: Job, env: Records, act: () => Promise<RunResult>): Promise<RunResult> {
  const unstarted = (status: "cancelled" | "lost", code: string, message: string): RunResult =>
    unstartedResult({ run: job.run, worker: job.worker.name }, status, { code, message });
  try {
    // It may have been cancelled while it waited for its turn.
    job.signal.throwIfAborted();
    return await act();
  } catch (error) {
    if (job.signal.aborted)
      return unstarted("cancelled", "CANCELLED", "The run was cancelled before its worker began.");
    const isHosts = isHostTrouble(error);
    if (!isHosts && !(error instanceof EngineTrouble)) throw error;
    env.emit({ type: "trouble", ...identityOf(job), detail: error.message });
    if (isHosts) {
      const message = `The host failed (${error.code}), not the worker. Free what it lacks, then run it again.`;
      return unstarted("lost", "HOST_TROUBLE", message);
    }
    const message = "The container engine failed, not the worker. `corral doctor` checks the engine.";
    return unstarted("lost", "ENGINE_TROUBLE", message);
  }
}

/** The environment of one root run whose events are kept in the history; and what stops it from outside. */
export function keptRun<Env extends Pick<RunEnvironment, "history" | "emit" | "masking">>(
  begun: BegunRun,
  env: Env,
): Pick<RunHistory, "stopped" | "closed"> & { readonly env: Env } {
  const kept = env.history.begin(begun);
  const { masking } = env;
  const see = maskedEmit((event) => kept.see(event), masking);
  const emit: Env["emit"] = (event) => {
    see(event);
    env.emit(event);
  };
  const closed: RunHistory["closed"] = (session) => kept.closed(masking.value(begun.run, session));
  return { env: { ...env, emit }, stopped: kept.stopped, closed };
}

export interface EndedCell {
  readonly exit: CellExit;
  readonly stopped: StopReason | null;
  readonly output: BoundedOutput;
  readonly enforcement: Enforcement;
  readonly calls: readonly RunResult[];
}

/** The result of a run whose worker began. */
export async function endedResult(
  worker: WorkerDefinition,
  plan: Plan,
  ended: EndedCell,
  schemas: SchemaChecks,
): Promise<RunResult> {
  const { exit, output } = ended;
  const stdout = output.text("stdout");
  const parsed =
    worker.output === "json" ? parseJson(stdout) : { ok: true as const, value: stdout === "" ? null : stdout };
  const known = endingOf(exit, ended.stopped);
  const notValid = parsed.ok && known.status === "succeeded" ? await outputError(worker, parsed.value, schemas) : null;
  const isWrong = !parsed.ok || notValid !== null;
  const ending: Ending = known.status === "succeeded" && isWrong ? { ...known, status: "failed" } : known;
  return {
    run: plan.run,
    worker: worker.name,
    ...ending,
    output: parsed.ok ? parsed.value : null,
    stdout,
    stderr: output.text("stderr"),
    truncated: output.truncated,
    violations: [],
    changes: [],
    changeset: null,
    durationMs: 0,
    usage:
      exit.kind === "exited"
        ? { ...exit.usage, outOfMemory: exit.outOfMemory }
        : { cpuMs: null, memoryBytesPeak: null, outOfMemory: null },
    enforcement: ended.enforcement,
    calls: ended.calls,
    error: notValid ?? errorOf(ending, exit, plan, parsed.ok ? null : parsed.problem),
  };
}

function errorOf(
  { status, exitCode, signal }: Ending,
  exit: CellExit,
  plan: Plan,
  notJson: string | null,
): RunError | null {
  const { worker: name, limits } = plan;
  const error = (code: string, how: string): RunError => ({ code, message: `Worker ${name} ${how}` });
  const atMost = formatDuration(limits.timeoutMs);
  const memory = formatBytes(limits.memoryBytes);
  switch (status) {
    case "succeeded":
      return null;
    case "failed":
      if (exitCode !== 0) return error("FAILED", `ended with exit code ${exitCode}.`);
      return error("OUTPUT_NOT_JSON", `declares \`output: json\`, and what it printed is not JSON: ${notJson}`);
    case "signaled":
      if (exit.kind === "lost" || exit.sent === undefined) return error("SIGNALED", `was ended by ${signal}.`);
      return error(
        "SIGNALED",
        `was sent ${exit.sent} through the container engine, as by \`docker stop\` or \`docker kill\`, and ended with ${exitCode === null ? signal : `exit code ${exitCode}`}.`,
      );
    case "timed_out": {
      const how = `did not end within its time limit (at most ${atMost}, less if its caller's limit ends sooner).`;
      return error("TIMED_OUT", how);
    }
    case "oom_killed":
      return error("OUT_OF_MEMORY", `was killed for using more memory than its limit of ${memory}.`);
    case "output_limit":
      return error("OUTPUT_LIMIT", `printed more than its limit of ${formatBytes(limits.outputBytes)}, and was ended.`);
    case "disk_limit":
      return error("DISK_LIMIT", `wrote more than its limit of ${formatBytes(limits.diskBytes)}.`);
    case "cancelled":
      return { code: "CANCELLED", message: `The run of worker ${name} was cancelled.` };
    default:
      return { code: "LOST", message: "The container engine stopped answering. It is not known how the worker ended." };
  }
}
