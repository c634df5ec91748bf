import type { Settled } from "../apply/verdict.ts";
import type { ChangeOutcome, Changeset } from "../model/changeset.ts";
import type { KeptOutcome, KeptState } from "./record.ts";

/** An approval program may give a reason of any length. */
const MAX_REASON_CHARS = 1000;

/** The changes that a person can still apply: those that are not applied and not refused. */
export function waitingIn({ changes }: Pick<Changeset, "changes">, state: KeptState): ReadonlySet<number> {
  const fit = new Set(changes.filter(({ refusal }) => refusal === null).map(({ index }) => index));
  return new Set(
    state.changes.filter((one) => one.outcome !== "applied" && fit.has(one.index)).map((one) => one.index),
  );
}

/**
 * The changes that were agreed to, and whose application had not begun when the process died: only these wait without a reason.
 * `keep` without a reason comes directly before an application.
 */
export function agreedIn({ changes }: KeptState): ReadonlySet<number> {
  const agreed = changes.filter(({ outcome, reason }) => outcome === "held" && reason === null);
  return new Set(agreed.map(({ index }) => index));
}

/** The first state of a kept changeset, with the reason why it waits. */
export function stateOf(changeset: Changeset, outcome: ChangeOutcome, reason: string | null): KeptState {
  const { version, id, run, worker, project, createdAt, changes, fleet } = changeset;
  const outcomes = changes.map(({ index, refusal }): KeptOutcome => {
    if (refusal !== null) return { index, outcome: "refused", reason: refusal };
    return { index, outcome, reason: reason === null ? null : reason.slice(0, MAX_REASON_CHARS) };
  });
  const of = fleet === undefined ? {} : { fleet };
  return { version, id, run, worker, project, createdAt, changes: outcomes, ...of };
}

/** The state with the new outcomes of some changes. */
export function withOutcomes(state: KeptState, fresh: readonly KeptOutcome[]): KeptState {
  const outcomes = new Map([...state.changes, ...fresh].map((one) => [one.index, one]));
  return { ...state, changes: [...outcomes.values()].sort((a, b) => a.index - b.index) };
}

export function outcomesOf(settled: readonly Settled[]): KeptOutcome[] {
  return settled.map(({ change: { index }, outcome, reason }) => ({ index, outcome, reason }));
}
