import type { ChangesOf, Collected } from "../../changes/collect.ts";
import { TooManyChanges } from "../../changes/scan/scan.ts";
import type { Stage } from "../../changes/stage.ts";
import { OF_FAILED_RUN } from "../../changes/store/record.ts";
import type { Declared, Destinations, Records, RunConsent } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import {
  type ChangesetKeeper,
  countsByOutcome,
  type DescribedViolation,
  describeAll,
  type FinishedChanges,
  type ReportedChange,
  type ReportedChangeset,
  type RunError,
  type RunResult,
  reported,
  violationsOf,
} from "../model/result.ts";
import { type ChangesOutcome, destinationOf, holdChanges, settleChanges } from "./settle.ts";

/** The outcome of the changes of a run that has ended. */
export interface SettledChanges {
  readonly changes: readonly ReportedChange[];
  /** Null if there were none, or if they could not be collected. */
  readonly changeset: ReportedChangeset | null;
  /** Why not all of them were applied; null if they were, or if none was to be. */
  readonly failure: {
    readonly status: "refused" | "denied" | "cancelled";
    readonly violations: readonly DescribedViolation[];
    readonly error: RunError;
  } | null;
}

/**
 * The result of a run together with the outcome of its changes. A run that did not succeed changes nothing: what it wrote
 * waits for a person, unless the user wants it anyway. If a run succeeded and not all of its changes were applied, its result is not a success.
 */
export async function settledRun(
  job: Job,
  result: RunResult,
  stage: Stage,
  env: Declared & RunConsent & Destinations & Pick<Records, "masking">,
): Promise<RunResult> {
  const { handsOver } = env;
  if (handsOver !== undefined && job.parent === null) return await handedOver(job, result, stage, env, handsOver);
  const succeeded = result.status === "succeeded";
  const isApplied = succeeded || (job.appliesFailed === true && WORKER_FAILED.has(result.status));
  const unfit = isApplied ? null : `${OF_FAILED_RUN} (${result.status})`;
  const withChanges = ({ changes, changeset, failure }: SettledChanges): RunResult => {
    if (failure === null) return { ...result, changes, changeset };
    // The result of a failed run also reports why its changes were not collected.
    const told = succeeded ? failure : { violations: [...result.violations, ...failure.violations] };
    return { ...result, changes, changeset, ...told };
  };
  const foreseen = (settled: SettledChanges): RunResult => env.masking.value(job.root, withChanges(settled));
  const settled = await settleEnded(job, stage, env, unfit, foreseen);
  return settled === null ? result : withChanges(settled);
}

/** The worker itself failed: what it wrote is whole. */
const WORKER_FAILED: ReadonlySet<RunResult["status"]> = new Set(["failed", "signaled", "timed_out", "oom_killed"]);

/** Another machine decides on its changes, of a run that failed too. */
async function handedOver(
  job: Job,
  result: RunResult,
  stage: Stage,
  env: Declared & RunConsent & Destinations & Pick<Records, "masking">,
  handsOver: NonNullable<Destinations["handsOver"]>,
): Promise<RunResult> {
  try {
    const collected = await stage.collect(changesOf(job, env), { search: env.masking.search(job.root) });
    if (collected !== null) await handsOver(job, collected.changeset);
    return result;
  } catch (error) {
    if (!(error instanceof TooManyChanges)) throw error;
    return result.status === "succeeded" ? { ...result, ...notTaken(error.message).failure } : result;
  }
}

/**
 * `unfit`: why nothing is applied in any case. `foreseen`: the run's result, if that is the outcome of its changes; null: no result
 * is foreseen. Returns null if nothing was changed.
 */
export async function settleEnded(
  job: Job,
  stage: Stage,
  env: Declared & RunConsent & Destinations & Pick<Records, "masking">,
  unfit: string | null,
  foreseen: ((settled: SettledChanges) => RunResult) | null = null,
): Promise<SettledChanges | null> {
  const into = destinationOf(job, stage, env);
  let collected: Collected | null;
  try {
    collected = await stage.collect(changesOf(job, env), { search: env.masking.search(job.root) });
  } catch (error) {
    if (!(error instanceof TooManyChanges)) throw error;
    return notTaken(error.message);
  }
  return collected === null ? null : await settleCollected(collected, job, into, env, { unfit, foreseen });
}

/** The same for changes that are collected already. */
export async function settleCollected(
  collected: Collected,
  job: Job,
  into: ChangesetKeeper,
  env: Declared & RunConsent,
  how: { readonly unfit: string | null; readonly foreseen: ((settled: SettledChanges) => RunResult) | null },
): Promise<SettledChanges> {
  const { unfit, foreseen } = how;
  let cancelled = false;
  const told = (settlement: ChangesOutcome): SettledChanges => {
    const failure = unfit !== null ? null : cancelled ? cancelledFailure(job) : failureOf(settlement, job);
    return { ...toldChanges(settlement, job), failure };
  };
  const resultIf = (settlement: ChangesOutcome) => foreseen?.(told(settlement)) ?? null;
  const settlement =
    unfit !== null
      ? await holdChanges(collected, unfit, into)
      : await settleChanges(collected, job, into, env, job.signal, resultIf).catch(async (error: unknown) => {
          if (!job.signal.aborted) throw error;
          cancelled = true;
          return await holdChanges(collected, "the run was cancelled before the changes were approved", into);
        });
  return told(settlement);
}

/** The root run of an item, as far as its result speaks of it. */
type ChangedRun = Pick<Job, "run" | "parent"> & { readonly worker: Pick<Job["worker"], "name"> };

/** The outcome of the changes of a root run that succeeded, if another process has finished their application. */
export function finishedChanges(run: string, worker: string, { outcomes, kept }: FinishedChanges): SettledChanges {
  const of = { run, parent: null, worker: { name: worker } };
  const settlement = { outcomes, decision: null, kept };
  return { ...toldChanges(settlement, of), failure: failureOf(settlement, of) };
}

function toldChanges({ outcomes, kept }: ChangesOutcome, { run, parent }: ChangedRun): Omit<SettledChanges, "failure"> {
  const id = kept && parent === null ? run : null;
  return { changes: reported(outcomes), changeset: { id, counts: countsByOutcome(outcomes) } };
}

/** `commit`: the number of this commit within its run, from 1. */
export function changesOf(job: Job, env: Declared & RunConsent & Destinations, commit = 1): ChangesOf {
  return {
    id: commit === 1 ? job.run : `${job.run}.${commit}`,
    run: job.run,
    root: job.root,
    worker: job.worker.name,
    project: env.project.dir,
    createdAt: new Date().toISOString(),
    // A commit on the way has an id of its own; only the changes at the end are the item's.
    ...(job.fleet === undefined || commit > 1 ? {} : { fleet: job.fleet }),
  };
}

function failureOf(settlement: ChangesOutcome, job: ChangedRun): SettledChanges["failure"] {
  const { outcomes, decision } = settlement;
  const violations = describeAll(violationsOf(outcomes));
  const counts = countsByOutcome(outcomes);
  if (violations.length > 0) {
    const code = counts.refused > 0 ? "CHANGES_REFUSED" : "CHANGES_CONFLICT";
    const what = `Corral applied ${counts.applied} of ${outcomes.length} changes of worker ${job.worker.name}.`;
    const message = [what, ...violations.map((violation) => violation.message)].join("\n");
    return { status: "refused", violations, error: { code, message } };
  }
  if (decision === null || decision.outcome === "approved") return heldFailure(outcomes, job);
  const timedOut = decision.outcome === "timed_out";
  const withheld = outcomes.filter(({ outcome }) => outcome !== "applied").map(({ change }) => change.path);
  const shown = withheld.slice(0, 5).join(", ") + (withheld.length > 5 ? ` and ${withheld.length - 5} more` : "");
  const way =
    job.parent === null
      ? `See \`corral changes show ${job.run}\`.`
      : "Declare `approval: pre_approved` for what it may write, or run it where a person can approve.";
  const what = `Worker ${job.worker.name} changed ${shown}`;
  const message = decision.unasked
    ? `${what}, which waits for approval: ${decision.reason}. ${way}`
    : `${what}; that needs approval, and ${timedOut ? "no answer came in time" : `it was denied: ${decision.reason}`}. ${way}`;
  const code = timedOut ? "APPROVAL_TIMED_OUT" : decision.unasked ? "CHANGES_HELD" : "APPROVAL_DENIED";
  return { status: "denied", violations: [], error: { code, message } };
}

/** Everything was approved, but not everything was applied. */
function heldFailure(outcomes: ChangesOutcome["outcomes"], job: ChangedRun): SettledChanges["failure"] {
  const held = outcomes.filter(({ outcome }) => outcome !== "applied");
  const [first] = held;
  if (first === undefined) return null;
  const way = job.parent === null ? ` See \`corral changes show ${job.run}\`.` : "";
  const applied = outcomes.length - held.length;
  const message = `Corral applied ${applied} of ${outcomes.length} changes of worker ${job.worker.name}: ${first.reason}.${way}`;
  return { status: "refused", violations: [], error: { code: "CHANGES_HELD", message } };
}

function cancelledFailure({ run, parent, worker }: Job): SettledChanges["failure"] {
  const way = parent === null ? ` What it changed waits: see \`corral changes show ${run}\`.` : "";
  const message = `The run of worker ${worker.name} was cancelled before its changes were approved.${way}`;
  return { status: "cancelled", violations: [], error: { code: "CANCELLED", message } };
}

function notTaken(reason: string): SettledChanges {
  const violations = describeAll([{ code: "CHANGES_NOT_TAKEN", reason }]);
  const error = { code: "CHANGES_NOT_TAKEN", message: violations.map(({ message }) => message).join("\n") };
  return { changes: [], changeset: null, failure: { status: "refused", violations, error } };
}
