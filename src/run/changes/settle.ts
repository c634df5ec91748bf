import type { Decision } from "../../approval/approver.ts";
import { type AuditRecord, changesApplied, outcomeCounts } from "../../audit/records.ts";
import { auditKey, recordsBack } from "../../audit/seal.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import { applyChangeset } from "../../changes/apply/application.ts";
import { APPLIED, type ChangeVerdict, type Settled } from "../../changes/apply/fitness.ts";
import type { Collected } from "../../changes/collect.ts";
import { type ChangeOutcome, type Changeset, only } from "../../changes/model/changeset.ts";
import type { Stage } from "../../changes/stage.ts";
import type { ChangesetStore } from "../../changes/store/changeset-store.ts";
import type { Finished, RecordApplied } from "../../changes/store/kept-folder.ts";
import { loadSealKey } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-dir.ts";
import type { Declared, Destinations, RunConsent } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import type { ChangesetKeeper, DecidedChange, RunResult } from "../model/result.ts";
import { openTrail } from "../recorded/run-history.ts";
import { decisionsOn } from "./decisions.ts";

/** The outcome of a run's changes. */
export interface ChangesOutcome {
  /** In the order of the changes. */
  readonly outcomes: readonly DecidedChange[];
  /** What was decided; an answer that is no approval takes precedence. Null if no approval was needed. */
  readonly decision: Decision | null;
  /** True if changes wait for `corral changes`. */
  readonly kept: boolean;
}

/**
 * Asks for the consent that is needed, and applies what may be applied. `into`: applies, or keeps what has to wait. `foreseen`: the
 * result of the run if all of it can be applied; null: the run continues.
 */
export async function settleChanges(
  collected: Collected,
  job: Job,
  into: ChangesetKeeper,
  env: Declared & RunConsent,
  signal: AbortSignal,
  foreseen: (settlement: ChangesOutcome) => RunResult | null = () => null,
): Promise<ChangesOutcome> {
  const { changeset } = collected;
  const { decisions, unfit } = await decisionsOn(collected, job, env, signal);
  const refused = changeset.changes.filter(({ refusal }) => refusal !== null).map(({ index }) => index);
  /** With what is refused, so that the user who decides on the rest sees it. */
  const kept = (indexes: readonly number[]): Changeset => only(changeset, new Set([...indexes, ...refused]));
  const withheld = new Set(
    [...decisions].filter(([, decision]) => decision.outcome !== "approved").map(([index]) => index),
  );
  // What waits is kept before anything is applied: a process that is killed in between loses nothing.
  for (const decision of new Set([...withheld].flatMap((index) => decisions.get(index) ?? []))) {
    const waiting = [...withheld].filter((index) => decisions.get(index) === decision);
    await into.keep(kept(waiting), withheldAs(decision), decision.reason);
  }
  for (const verdict of distinct([...unfit.values()])) {
    const alike = [...unfit].filter(([, one]) => isAlike(one, verdict)).map(([index]) => index);
    await into.keep(kept(alike), verdict.outcome, verdict.reason ?? "");
  }
  const fit = changeset.changes.filter(
    ({ refusal, index }) => refusal === null && !withheld.has(index) && !unfit.has(index),
  );
  const indexes = new Set(fit.map(({ index }) => index));
  const all = [...decisions.values()];
  const settlement = (applied: readonly DecidedChange[]): ChangesOutcome => {
    const done = new Map(applied.map((one) => [one.change.index, one]));
    const outcomes = changeset.changes.map((change): DecidedChange => {
      if (change.refusal !== null) return { change, outcome: "refused", reason: change.refusal };
      const verdict = unfit.get(change.index);
      if (verdict !== undefined) return { change, ...verdict };
      const decision = decisions.get(change.index);
      if (decision !== undefined && decision.outcome !== "approved")
        return { change, outcome: withheldAs(decision), reason: decision.reason };
      return done.get(change.index) ?? { change, outcome: "held", reason: "it was not reached" };
    });
    const waits = withheld.size > 0 || outcomes.some(({ outcome }) => WAITS.has(outcome));
    return {
      outcomes,
      decision: all.find(({ outcome }) => outcome !== "approved") ?? all[0] ?? null,
      kept: waits,
    };
  };
  const { begin } = job;
  const ifApplied = (): ChangesOutcome => settlement(fit.map((change) => ({ change, ...APPLIED })));
  const beginning = begin === undefined ? undefined : { refused, begin: () => begin(foreseen(ifApplied())) };
  const settled = settlement(fit.length === 0 ? [] : await into.apply(changeset, indexes, beginning));
  if (settled.kept && withheld.size + unfit.size === 0 && refused.length > 0) await into.keep(kept([]), "refused", "");
  return settled;
}

function distinct(verdicts: readonly ChangeVerdict[]): ChangeVerdict[] {
  return verdicts.filter((one, index) => verdicts.findIndex((other) => isAlike(one, other)) === index);
}

function isAlike(one: ChangeVerdict, other: ChangeVerdict): boolean {
  return one.outcome === other.outcome && one.reason === other.reason;
}

const WAITS: ReadonlySet<ChangeOutcome> = new Set(["conflict", "held"]);

/** Nothing is applied, and all of it waits. */
export async function holdChanges(
  { changeset }: Collected,
  reason: string,
  into: ChangesetKeeper,
): Promise<ChangesOutcome> {
  const outcomes = changeset.changes.map(
    (change): DecidedChange =>
      change.refusal === null
        ? { change, outcome: "held", reason }
        : { change, outcome: "refused", reason: change.refusal },
  );
  const waiting = new Set(outcomes.filter(({ outcome }) => outcome === "held").map(({ change }) => change.index));
  if (waiting.size > 0) await into.keep(changeset, "held", reason);
  return { outcomes, decision: null, kept: waiting.size > 0 };
}

/** Without an answer nothing was denied: the changes can still be approved. */
export function withheldAs({ outcome, unasked }: Decision): "denied" | "held" {
  return outcome === "denied" && !unasked ? "denied" : "held";
}

/**
 * Where a run's changes go. Those of a called run go to its caller's view, which is removed with the caller: they never
 * wait. If the caller has no view, they change the project itself, and are applied and recorded as such.
 */
export function destinationOf(
  { parent }: Pick<Job, "parent">,
  stage: Pick<Stage, "logDir" | "reachesProject">,
  { changesets }: Destinations,
): ChangesetKeeper {
  if (parent === null) return changesets;
  const { logDir, reachesProject } = stage;
  return {
    keep: async () => {},
    apply: async (changeset, indexes, beginning) =>
      reachesProject
        ? await changesets.apply(changeset, indexes, beginning)
        : await applyChangeset(changeset, indexes, { logDir }),
  };
}

/** One application that was finished in place of a process that died, or that could not be finished. */
export interface ToldFinish {
  readonly finished: Finished;
  /** For people. */
  readonly text: string;
}

/**
 * Finishes applying what dead processes had begun to apply, in any project of the state directory, and records it in the
 * audit trail of the project whose changes they are.
 */
export async function finishInterrupted(store: ChangesetStore, stateDir: string): Promise<ToldFinish[]> {
  const troubles = new Map<string, string>();
  const record: RecordApplied = async (changeset, settled, how) => {
    const trail = await openTrail(stateDir, changeset.project);
    try {
      await recordingApplied(stateDir, trail)(changeset, settled, how);
    } catch (error) {
      // It is applied, and its beginning was recorded: a failure to record its end is no reason to stop.
      troubles.set(changeset.id, `; ${(error as Error).message}`);
    } finally {
      await trail.close();
    }
  };
  const all = await store.finishInterrupted({ record });
  return all.map((finished) => {
    const text = finished.ok ? `${finishedText(finished)}${troubles.get(finished.id) ?? ""}` : failed(finished);
    return { finished, text };
  });
}

/** `by`: who applies it. One that was interrupted may be in the trail already: its process died after that. */
export function recordingApplied(stateDir: string, trail: Pick<AuditTrail, "append">, by?: string): RecordApplied {
  return async (changeset, settled, { resumed }) => {
    if (resumed && (await isRecorded(changeset, stateDir))) return;
    await trail.append(appliedOf(changeset, settled, resumed ? undefined : by));
  };
}

export function appliedOf(changeset: Changeset, settled: readonly Settled[], by?: string): AuditRecord {
  const changes = settled.map(({ change: { path, kind }, outcome }) => ({ path, kind, outcome }));
  return changesApplied(changeset, changes, by);
}

/** Whether the newest application of this changeset has an end in the trail. */
async function isRecorded(
  { id, project }: { readonly id: string; readonly project: string },
  stateDir: string,
): Promise<boolean> {
  const key = auditKey(await loadSealKey(stateDir), project);
  for await (const lines of recordsBack(projectPaths(stateDir, project).trail, key)) {
    for (const { record } of lines) {
      if (record === null || !("changeset" in record) || record.changeset !== id) continue;
      if (record.type === "changes_applied") return true;
      if (record.type === "changes_applying") return false;
    }
  }
  return false;
}

function finishedText({ id, settled }: Finished & { ok: true }): string {
  const counts = Object.entries(outcomeCounts(settled)).map(([outcome, count]) => `${count} ${outcome}`);
  return `finished applying changeset ${id}, which was interrupted: ${counts.join(", ") || "nothing"}`;
}

function failed({ id, reason }: Finished & { ok: false }): string {
  return `changeset ${id} was interrupted and cannot be finished: ${reason}`;
}
