import type { Decision } from "../../approval/approver.ts";
import { applyChangeset } from "../../changes/apply/application.ts";
import { APPLIED, type Verdict } from "../../changes/apply/fitness.ts";
import type { Collected } from "../../changes/collect.ts";
import { type ChangeOutcome, type Changeset, only } from "../../changes/model/changeset.ts";
import type { Stage } from "../../changes/stage.ts";
import type { Consent, Declared, Destinations } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import type { Changesets, Outcome } from "../model/reported.ts";
import type { RunResult } from "../model/result.ts";
import { decisionsOn } from "./decisions.ts";

/** The outcome of a run's changes. */
export interface Settlement {
  /** In the order of the changes. */
  readonly outcomes: readonly Outcome[];
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
  into: Changesets,
  env: Declared & Consent,
  signal: AbortSignal,
  foreseen: (settlement: Settlement) => RunResult | null = () => null,
): Promise<Settlement> {
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
  const settlement = (applied: readonly Outcome[]): Settlement => {
    const done = new Map(applied.map((one) => [one.change.index, one]));
    const outcomes = changeset.changes.map((change): Outcome => {
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
  const ifApplied = (): Settlement => settlement(fit.map((change) => ({ change, ...APPLIED })));
  const beginning = begin === undefined ? undefined : { refused, begin: () => begin(foreseen(ifApplied())) };
  const settled = settlement(fit.length === 0 ? [] : await into.apply(changeset, indexes, beginning));
  if (settled.kept && withheld.size + unfit.size === 0 && refused.length > 0) await into.keep(kept([]), "refused", "");
  return settled;
}

function distinct(verdicts: readonly Verdict[]): Verdict[] {
  return verdicts.filter((one, index) => verdicts.findIndex((other) => isAlike(one, other)) === index);
}

function isAlike(one: Verdict, other: Verdict): boolean {
  return one.outcome === other.outcome && one.reason === other.reason;
}

const WAITS: ReadonlySet<ChangeOutcome> = new Set(["conflict", "held"]);

/** Nothing is applied, and all of it waits. */
export async function holdChanges({ changeset }: Collected, reason: string, into: Changesets): Promise<Settlement> {
  const outcomes = changeset.changes.map(
    (change): Outcome =>
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
): Changesets {
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
