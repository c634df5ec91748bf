import { EngineTrouble } from "../isolation/port/driver.ts";
import { isHostTrouble } from "../platform/host-trouble.ts";
import type { Records } from "./model/environment.ts";
import { identityOf, type Job } from "./model/job.ts";
import { brokenResult, type RunResult, unstartedResult } from "./model/result.ts";

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
