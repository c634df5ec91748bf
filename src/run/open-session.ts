import type { StageRequest } from "../changes/stage.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Pins } from "../isolation/sources/pin.ts";
import { Disposables } from "../platform/disposables.ts";
import { bugText } from "../platform/errno.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { present } from "../text/present.ts";
import { Calls } from "./calls/calls.ts";
import { openRunNetwork } from "./cell/run-network.ts";
import { openStage, refusedMounts } from "./changes/lent-attachments.ts";
import { type SettledChanges, settleEnded } from "./changes/settled-run.ts";
import { surroundingsOf, takingGiven } from "./grants/access-request.ts";
import type { RunEnvironment } from "./model/environment.ts";
import { Grantee } from "./model/grantee.ts";
import { identityOf, type Job, type Narrow, newRunId, rootJob } from "./model/job.ts";
import { permissionOf, rootSandbox } from "./model/permission.ts";
import { type DescribedViolation, describeAll } from "./model/result.ts";
import { keptRun } from "./recorded-run.ts";
import { perform, servicesBeside } from "./run.ts";
import { Session } from "./session/session.ts";
import { beyondSnapshot, forgetSnapshots, openedSnapshot } from "./session/session-snapshots.ts";

export interface SessionRequest {
  readonly worker: WorkerDefinition;
  /** A policy in place of the project's. */
  readonly policy?: string;
  /** Takes something away from the worker's own sandbox; absent or null: nothing. Nothing is granted beyond that. */
  readonly narrow?: (sandbox: Sandbox) => Narrow | null;
  /** A snapshot to go on from: its id or name, or the session whose last one it is. Its policy, if none is chosen. */
  readonly from?: string;
  /** What the session is called. */
  readonly name?: string;
  /** What it wrote is kept as its last snapshot if it is not ended by {@link OpenedSession.finish}. */
  readonly keepsLast?: boolean;
  readonly signal: AbortSignal;
}

export type OpenedSession =
  | {
      readonly ok: true;
      /** Its id in questions and records. */
      readonly run: string;
      readonly session: Session;
      /** Ends the session and applies the changes for which there is consent; null if there were none. `asks`: false: what needs a person waits. */
      readonly finish: (how?: { readonly asks: boolean }) => Promise<SettledChanges | null>;
      /** Ends the session; what it wrote in staged directories is gone, but for what a snapshot has. */
      readonly discard: () => Promise<void>;
      /** Removes every trace. Changes wait for a person if {@link finish} was not called. */
      readonly [Symbol.asyncDispose]: () => Promise<void>;
    }
  | { readonly ok: false; readonly violations: readonly DescribedViolation[] };

/** No caller waits for the end of a session that was stopped from outside. */
function reportTo({ emit }: Pick<RunEnvironment, "emit">, job: Job): (error: unknown) => void {
  return (error) => emit({ type: "trouble", ...identityOf(job), detail: bugText(error) });
}

const NO_ATTACHMENTS: Pins = { sources: new Map(), [Symbol.asyncDispose]: async () => {} };

/**
 * Opens a worker's sandbox for a user's or a program's own use: its tools and a shell in its cell. The worker's own
 * command does not run. Each write that needs consent is asked about by itself. @throws ToolRefusal if there is no such snapshot
 */
export async function openSession(
  { worker, policy: chosen, narrow: narrowing, from, name, keepsLast = false, signal }: SessionRequest,
  environment: RunEnvironment,
): Promise<OpenedSession> {
  const run = newRunId();
  const { snapshots: store, ownerDir } = environment;
  await using opening = new Disposables();
  let gone: string | null = null;
  opening.use({ [Symbol.asyncDispose]: () => forgetSnapshots(store, { ownerDir, run, gone }) });
  const origin = from === undefined ? null : await openedSnapshot(store, from, worker, { ownerDir, run });
  const policy = chosen ?? origin?.record.policy ?? null;
  const project = await rootSandbox(environment, policy, worker);
  const whole = await permissionOf(worker, project, null, environment);
  if (!whole.ok) return { ok: false, violations: describeAll(whole.violations) };
  const narrow = narrowing?.(whole.sandbox) ?? null;
  const derivation = narrow === null ? whole : await permissionOf(worker, project, narrow, environment);
  if (!derivation.ok) return { ok: false, violations: describeAll(derivation.violations) };
  const { sandbox } = derivation;
  const refused = [
    ...refusedMounts(sandbox, environment),
    ...(origin === null ? [] : await beyondSnapshot(origin.record, worker, environment)),
  ];
  if (refused.length > 0) return { ok: false, violations: describeAll(refused) };
  const begun = { run, kind: "session", worker: worker.name, attachments: [] } as const;
  const { env, stopped, closed } = keptRun(begun, environment);
  // Only if it is not opened: what is closed first counts.
  opening.use({ [Symbol.dispose]: () => closed({ status: "cancelled", changeset: null, network: null }) });
  const asked = { run, worker, callerSandbox: project, signal };
  const job = { ...rootJob(asked, env.project.delegation), narrow };
  const about = { name: null, isLast: true, run, session: name ?? null, worker: worker.name, policy, sandbox };
  const onViews: StageRequest["onViews"] = async (views, direct) =>
    views.length === 0 ? undefined : await store?.prepare(ownerDir, { ...about, direct: [...direct] }, views);
  const staging = await openStage(job, sandbox, env, origin?.views, keepsLast ? onViews : undefined);
  if (!staging.ok) return { ok: false, violations: describeAll(staging.violations) };
  const stage = opening.use(staging.stage);
  const grantee = new Grantee(job, stage);
  const given = takingGiven(grantee, surroundingsOf(job, env), env.agreedBy, signal);
  opening.use(await env.grants.join(grantee, given));
  const services = opening.use(await servicesBeside(job, grantee, env));
  const unready = services.ok ? await services.ready() : services.violations;
  if (!services.ok || unready.length > 0) return { ok: false, violations: describeAll(unready) };
  const network = opening.use(await openRunNetwork(job, grantee, env, services.cell));
  const calls = new Calls({
    job,
    grantee,
    pins: NO_ATTACHMENTS,
    deadline: Number.POSITIVE_INFINITY,
    meter: network.meter,
    env,
    perform: (called) => perform(called, env),
  });
  const session = await Session.open({
    job,
    grantee,
    stage,
    network,
    env,
    call: (request, hangUp) => calls.call(request, hangUp),
    standalone: true,
    ...present({ snapshots: store && { store, session: name ?? null, policy, sandbox } }),
  });
  const parts = opening.move();
  let isOver = false;
  const end = async (
    unfit: string | null,
    { isDiscarded = false, asks = true }: { readonly isDiscarded?: boolean; readonly asks?: boolean } = {},
  ): Promise<SettledChanges | null> => {
    if (isOver) return null;
    isOver = true;
    let settled: SettledChanges | null = null;
    let isKept = false;
    try {
      try {
        await calls.end();
      } finally {
        if (unfit !== null && keepsLast && !isDiscarded)
          isKept = (await session.snapshots?.takeLast().catch(reportTo(env, job))) === true;
        await session[Symbol.asyncDispose]();
      }
      // The changes of a fork would be a copy of all layers below it, and its last snapshot has them.
      if (!isDiscarded && !(isKept && origin !== null)) {
        const deciding = asks ? env : { ...env, approver: env.nobodyAsked };
        settled = await settleEnded(job, stage, deciding, unfit);
      }
      return settled;
    } finally {
      const { network: used = null } = network.report();
      closed({
        status: stopped.aborted ? "cancelled" : "closed",
        changeset: settled?.changeset ?? null,
        network: used === null ? null : { ...used },
      });
    }
  };
  // What it wrote waits for the user, who stopped it.
  const onStopped = (): void => void end("the session was stopped").catch(reportTo(env, job));
  stopped.addEventListener("abort", onStopped, { once: true });
  const close = async (): Promise<void> => {
    await using _ = parts;
    stopped.removeEventListener("abort", onStopped);
    await end("the session was not ended in order");
    env.masking.release(job.root);
  };
  const finish = async (how?: { readonly asks: boolean }): Promise<SettledChanges | null> => {
    // What it went on from is in what was applied, or waits as a change.
    gone = origin?.record.isLast ? origin.record.id : null;
    return await end(null, how);
  };
  const discard = async (): Promise<void> => void (await end("its changes were discarded", { isDiscarded: true }));
  return { ok: true, run: job.run, session, finish, discard, [Symbol.asyncDispose]: close };
}
