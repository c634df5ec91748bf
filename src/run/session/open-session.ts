import type { Pins } from "../../isolation/pin.ts";
import type { WorkerDefinition } from "../../project/worker.ts";
import { Calls } from "../calls.ts";
import type { RunEnvironment } from "../environment.ts";
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
  | { readonly ok: true; readonly session: Session; readonly [Symbol.asyncDispose]: () => Promise<void> }
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
  const asked = { run: newRunId(), worker, callerSandbox: project.sandbox, signal };
  const job = rootJob(asked, env.project.delegation);
  const calls = new Calls(job, sandbox, NO_ATTACHMENTS, Number.POSITIVE_INFINITY, env, perform);
  const session = await Session.open(job, sandbox, env, (request, hangUp) => calls.call(request, hangUp));
  const close = async (): Promise<void> => {
    try {
      await calls.end();
    } finally {
      await session[Symbol.asyncDispose]();
    }
  };
  return { ok: true, session, [Symbol.asyncDispose]: close };
}
