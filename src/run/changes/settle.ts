import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import { ruling } from "../../approval/rules.ts";
import type { Change, ChangeOutcome, Changeset } from "../../changes/changeset.ts";
import { changesetDiff } from "../../changes/diff.ts";
import type { Collected } from "../../changes/stage.ts";
import type { RunEnvironment } from "../environment.ts";
import type { Job } from "../job.ts";
import type { Changesets } from "./changesets.ts";
import type { Outcome } from "./reported.ts";

/** What became of a run's changes. */
export interface Settlement {
  /** In the order of the changes. */
  readonly outcomes: readonly Outcome[];
  /** What was decided, the answer that was no approval first; null where nobody had to be asked. */
  readonly decision: Decision | null;
  /** True where what was not applied waits for `corral changes`. */
  readonly kept: boolean;
}

/** Asks for what somebody has to agree to, and applies what may be applied. `into`: how, and what waits where it may not. */
export async function settleChanges(
  { changeset, toAsk }: Collected,
  job: Job,
  into: Changesets,
  env: RunEnvironment,
  signal: AbortSignal,
): Promise<Settlement> {
  const decisions = await decisionsOn({ changeset, toAsk }, job, env, signal);
  const withheld = new Set(
    [...decisions].filter(([, decision]) => decision.outcome !== "approved").map(([index]) => index),
  );
  // What waits is kept before anything is applied: a process that is killed in between loses nothing of it.
  for (const state of ["denied", "held"] as const) {
    const waiting = [...decisions].filter(
      ([, decision]) => decision.outcome !== "approved" && withheldAs(decision) === state,
    );
    if (waiting.length > 0) await into.keep(only(changeset, new Set(waiting.map(([index]) => index))), state);
  }
  const fit = changeset.changes.filter((change) => change.refusal === null && !withheld.has(change.index));
  const indexes = new Set(fit.map(({ index }) => index));
  const applied = new Map(
    fit.length === 0 ? [] : (await into.apply(changeset, indexes)).map((done) => [done.change.index, done]),
  );
  const outcomes = changeset.changes.map((change): Outcome => {
    if (change.refusal !== null) return { change, outcome: "refused", reason: change.refusal };
    const decision = decisions.get(change.index);
    if (decision !== undefined && decision.outcome !== "approved")
      return { change, outcome: withheldAs(decision), reason: decision.reason };
    return applied.get(change.index) ?? { change, outcome: "held", reason: "it was not reached" };
  });
  const all = [...decisions.values()];
  const decision = all.find(({ outcome }) => outcome !== "approved") ?? all[0] ?? null;
  return { outcomes, decision, kept: withheld.size > 0 || outcomes.some(({ outcome }) => outcome === "conflict") };
}

/** Nothing is applied, and all of it waits. */
export async function holdChanges({ changeset }: Collected, reason: string, into: Changesets): Promise<Settlement> {
  const outcomes = changeset.changes.map(
    (change): Outcome =>
      change.refusal === null
        ? { change, outcome: "held", reason }
        : { change, outcome: "refused", reason: change.refusal },
  );
  const waiting = new Set(outcomes.filter(({ outcome }) => outcome === "held").map(({ change }) => change.index));
  if (waiting.size > 0) await into.keep(only(changeset, waiting), "held");
  return { outcomes, decision: null, kept: waiting.size > 0 };
}

/** Nobody answered: nothing was denied, and it can still be agreed to. */
function withheldAs({ outcome }: Decision): ChangeOutcome {
  return outcome === "denied" ? "denied" : "held";
}

/**
 * One decision on each change that needs one. The project's rules speak of each by itself; what one rule decides is
 * decided, and written down, together, and so is what is left for a person.
 */
async function decisionsOn(
  { changeset, toAsk }: Collected,
  job: Job,
  env: RunEnvironment,
  signal: AbortSignal,
): Promise<Map<number, Decision>> {
  const byRules = ruling(env.project.approval.rules);
  const groups = new Map<string, Change[]>();
  for (const change of toAsk) {
    const ruled = byRules(requestFor([change], job))?.reason ?? FOR_A_PERSON;
    const group = groups.get(ruled) ?? [];
    group.push(change);
    groups.set(ruled, group);
  }
  const decisions = new Map<number, Decision>();
  for (const [ruled, changes] of [...groups].sort(
    ([a], [b]) => Number(a === FOR_A_PERSON) - Number(b === FOR_A_PERSON),
  )) {
    const shown = only(changeset, new Set(changes.map(({ index }) => index)));
    const diff = ruled === FOR_A_PERSON ? { diff: await changesetDiff(shown) } : {};
    const decision = await env.approver.decide({ ...requestFor(changes, job), ...diff }, signal);
    // Somebody who stopped everything has not answered this.
    signal.throwIfAborted();
    for (const { index } of changes) decisions.set(index, decision);
  }
  return decisions;
}

/** No reason of a rule is empty. */
const FOR_A_PERSON = "";

function requestFor(changes: readonly Change[], { run, root, worker, path }: Job): ApprovalRequest {
  const operations = (["write", "delete"] as const).filter((operation) =>
    changes.some((change) => isA(operation, change)),
  );
  const why = "This is what it changed.";
  return {
    run,
    root,
    worker: worker.name,
    through: path,
    operations,
    paths: changes.map((change) => change.path),
    why,
  };
}

function isA(operation: "write" | "delete", { kind }: Change): boolean {
  return (kind === "delete") === (operation === "delete");
}

function only(changeset: Changeset, indexes: ReadonlySet<number>): Changeset {
  return { ...changeset, changes: changeset.changes.filter(({ index }) => indexes.has(index)) };
}
