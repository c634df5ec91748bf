import type { Pins } from "../../isolation/pin.ts";
import { refusalOf } from "../../isolation/refused-sources.ts";
import type { WorkerDefinition } from "../../project/worker.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { Calls } from "../calls.ts";
import { openStage } from "../changes/open-stage.ts";
import { type SettledChanges, settleEnded } from "../changes/settled-run.ts";
import type { RunEnvironment } from "../environment.ts";
import { holderOf } from "../grants/holder.ts";
import { newRunId, rootJob } from "../job.ts";
import { permissionOf, rootSandbox } from "../permission.ts";
import { type DescribedViolation, describeAll } from "../result.ts";
import { perform } from "../run.ts";
import { Session } from "./session.ts";

export interface SessionRequest {
  readonly worker: WorkerDefinition;
  /** A policy in place of the project's. */
  readonly policy?: string;
  readonly signal: AbortSignal;
}

export type OpenedSession =
  | {
      readonly ok: true;
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
  { worker, policy, signal }: SessionRequest,
  env: RunEnvironment,
): Promise<OpenedSession> {
  const project = await rootSandbox(env, policy ?? null);
  if (!project.ok) return { ok: false, violations: describeAll(project.violations) };
  const derivation = await permissionOf(worker, project.sandbox, null, env);
  if (!derivation.ok) return { ok: false, violations: describeAll(derivation.violations) };
  const { sandbox } = derivation;
  const refused = refusedMounts(sandbox, env);
  if (refused.length > 0) return { ok: false, violations: describeAll(refused) };
  const asked = { run: newRunId(), worker, callerSandbox: project.sandbox, signal };
  const job = rootJob(asked, env.project.delegation);
  const staging = await openStage(job, sandbox, env);
  if (!staging.ok) return { ok: false, violations: describeAll(staging.violations) };
  const { stage } = staging;
  const holder = holderOf(job, stage);
  const grants = await env.grants.join(holder).catch(async (error: unknown) => {
    await stage[Symbol.asyncDispose]();
    throw error;
  });
  const calls = new Calls(job, holder, NO_ATTACHMENTS, Number.POSITIVE_INFINITY, env, perform);
  const session = await Session.open(job, holder, stage, env, (request, hangUp) => calls.call(request, hangUp), true);
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
  return { ok: true, session, finish: () => end(null), [Symbol.asyncDispose]: close };
}

/** What no cell may be shown is not for the tools on the host's side either, and they need no cell. */
function refusedMounts(sandbox: Sandbox, env: RunEnvironment): Violation[] {
  return sandbox.mounts.flatMap(({ path, host }): Violation[] => {
    const reason = refusalOf(host, env.refusedSources);
    return reason === null ? [] : [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
  });
}
