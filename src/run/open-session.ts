import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Pins } from "../isolation/sources/pin.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { Calls } from "./calls/calls.ts";
import { openStage } from "./changes/open-stage.ts";
import { type SettledChanges, settleEnded } from "./changes/settled-run.ts";
import type { RunEnvironment } from "./model/environment.ts";
import { granteeOf } from "./model/grantee.ts";
import { type Narrow, newRunId, rootJob } from "./model/job.ts";
import { permissionOf, rootSandbox } from "./model/permission.ts";
import { type DescribedViolation, describeAll } from "./model/result.ts";
import { perform } from "./run.ts";
import { refusedMounts } from "./session/refused-mounts.ts";
import { Session } from "./session/session.ts";

export interface SessionRequest {
  readonly worker: WorkerDefinition;
  /** A policy in place of the project's. */
  readonly policy?: string;
  /** What is taken away from the worker's own sandbox; absent or null: nothing. Nothing is granted past that while it goes on. */
  readonly narrow?: (sandbox: Sandbox) => Narrow | null;
  readonly signal: AbortSignal;
}

export type OpenedSession =
  | {
      readonly ok: true;
      /** Its id, by which questions and records name it. */
      readonly run: string;
      readonly session: Session;
      /** Ends the session, and applies what was changed in it as far as somebody agrees; null where nothing waited. */
      readonly finish: () => Promise<SettledChanges | null>;
      /** Removes every trace. What was changed, and {@link finish} was not called for, waits for a person. */
      readonly [Symbol.asyncDispose]: () => Promise<void>;
    }
  | { readonly ok: false; readonly violations: readonly DescribedViolation[] };

const NO_ATTACHMENTS: Pins = { sources: new Map(), [Symbol.asyncDispose]: async () => {} };

/**
 * A worker's sandbox for a person's or a program's own use: its tools and a shell in its cell. The worker's own command
 * does not run. Nothing is agreed to beforehand: each write that asks is asked about by itself.
 */
export async function openSession(
  { worker, policy, narrow: narrowing, signal }: SessionRequest,
  env: RunEnvironment,
): Promise<OpenedSession> {
  const project = await rootSandbox(env, policy ?? null);
  if (!project.ok) return { ok: false, violations: describeAll(project.violations) };
  const whole = await permissionOf(worker, project.sandbox, null, env);
  if (!whole.ok) return { ok: false, violations: describeAll(whole.violations) };
  const narrow = narrowing?.(whole.sandbox) ?? null;
  const derivation = narrow === null ? whole : await permissionOf(worker, project.sandbox, narrow, env);
  if (!derivation.ok) return { ok: false, violations: describeAll(derivation.violations) };
  const { sandbox } = derivation;
  const refused = refusedMounts(sandbox, env);
  if (refused.length > 0) return { ok: false, violations: describeAll(refused) };
  const asked = { run: newRunId(), worker, callerSandbox: project.sandbox, signal };
  const job = { ...rootJob(asked, env.project.delegation), narrow };
  const staging = await openStage(job, sandbox, env);
  if (!staging.ok) return { ok: false, violations: describeAll(staging.violations) };
  const { stage } = staging;
  const grantee = granteeOf(job, stage);
  const grants = await env.grants.join(grantee).catch(async (error: unknown) => {
    await stage[Symbol.asyncDispose]();
    throw error;
  });
  const calls = new Calls({
    job,
    grantee,
    pins: NO_ATTACHMENTS,
    deadline: Number.POSITIVE_INFINITY,
    env,
    perform: (called) => perform(called, env),
  });
  const session = await Session.open({
    job,
    grantee,
    stage,
    env,
    call: (request, hangUp) => calls.call(request, hangUp),
    standalone: true,
  });
  let isOver = false;
  const end = async (unfit: string | null): Promise<SettledChanges | null> => {
    if (isOver) return null;
    isOver = true;
    try {
      await calls.end();
    } finally {
      await session[Symbol.asyncDispose]();
    }
    return await settleEnded(job, stage, env, unfit);
  };
  const close = async (): Promise<void> => {
    await using _ = stage;
    await using __ = grants;
    await end("the session was not ended in order");
  };
  return { ok: true, run: job.run, session, finish: () => end(null), [Symbol.asyncDispose]: close };
}
