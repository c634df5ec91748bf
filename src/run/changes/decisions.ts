import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import { ruling } from "../../approval/rules.ts";
import type { ChangeVerdict } from "../../changes/apply/fitness.ts";
import type { Collected } from "../../changes/collect.ts";
import { changesApart, DIFF_LIMITS, shownChangeset } from "../../changes/diff.ts";
import { type Change, only, placesAbove } from "../../changes/model/changeset.ts";
import type { HostExecuted } from "../../sandbox/approval.ts";
import { present } from "../../text/present.ts";
import type { Declared, RunConsent } from "../model/environment.ts";
import type { Job } from "../model/job.ts";

/**
 * Changes that are decided together: by one rule, or by the approver if no rule covers them. What programs of the host would execute is
 * decided on apart, and first.
 */
interface Group {
  readonly ruled: string;
  readonly isApart: boolean;
  readonly changes: readonly Change[];
}

/** The run whose changes are decided on. */
export interface ChangingRun extends Pick<Job, "run" | "root"> {
  readonly worker: Pick<Job["worker"], "name">;
  /** The workers from the root run down to this one; absent: not known any more. */
  readonly path?: readonly string[];
}

interface Deciding {
  readonly project: { readonly approval: Pick<Declared["project"]["approval"], "rules"> };
  readonly approver: RunConsent["approver"];
}

export interface Decided {
  /** By the index of the change. */
  readonly decisions: ReadonlyMap<number, Decision>;
  /** What could not be applied when the question was made: its content was not shown, so no answer is about it. */
  readonly unfit: ReadonlyMap<number, ChangeVerdict>;
}

/**
 * One decision on each change that needs one. The project's rules speak of each by itself; what one rule decides is
 * decided, and written down, together, and so is what is left for a person: first what programs of the host would execute.
 */
export async function decisionsOn(
  { changeset, toAsk, leftToCallers }: Pick<Collected, "changeset" | "toAsk" | "leftToCallers">,
  job: ChangingRun,
  env: Deciding,
  signal: AbortSignal,
): Promise<Decided> {
  const byRules = ruling(env.project.approval.rules);
  const apart = changesApart(changeset);
  const asked = (changes: readonly Change[]) => requestFor(changes, job, apart);
  // A caller's consent does not replace a rule that denies: the run's own tools would have been refused too.
  const denied = leftToCallers.filter((change) => byRules(asked([change]))?.outcome === "denied");
  const decisions = new Map<number, Decision>();
  const unfit = new Map<number, ChangeVerdict>();
  for (const { ruled, changes } of groupsOf([...toAsk, ...denied], apart, (changes) => byRules(asked(changes)))) {
    const group = only(changeset, new Set(changes.map(({ index }) => index)));
    const shown = ruled === FOR_A_PERSON ? await shownChangeset(group, DIFF_LIMITS, changeset) : null;
    for (const [index, verdict] of shown?.unfit ?? []) unfit.set(index, verdict);
    const fit = changes.filter(({ index }) => !unfit.has(index));
    if (fit.length === 0) continue;
    const diff = shown === null ? {} : { diff: shown.diff };
    const decision = await env.approver.decide({ ...asked(fit), ...diff }, signal);
    // Stopping everything is not an answer to this question.
    signal.throwIfAborted();
    for (const { index } of fit) decisions.set(index, decision);
  }
  return { decisions: withWhatGivesWay(decisions, changeset.changes), unfit };
}

/** What the project's rules alone say of one change: null if a person decides. `apart`: as of `changesApart`. */
export function ruledChange(
  { approval }: Deciding["project"],
  job: ChangingRun,
  apart: ReadonlyMap<number, string>,
): (change: Change) => Decision | null {
  const byRules = ruling(approval.rules);
  return (change) => byRules(requestFor([change], job, apart));
}

/** The reason of a rule is never empty. */
const FOR_A_PERSON = "";

/** What is left for a person comes last. */
function groupsOf(
  toAsk: readonly Change[],
  apart: ReadonlyMap<number, string>,
  byRules: (changes: readonly Change[]) => Decision | null,
): Group[] {
  const ruledBy = (changes: readonly Change[]): string => byRules(changes)?.reason ?? FOR_A_PERSON;
  const groups = new Map<string, Omit<Group, "changes"> & { changes: Change[] }>();
  for (const change of toAsk) {
    const [ruled, isApart] = [ruledBy([change]), apart.has(change.index)];
    const key = `${isApart} ${ruled}`;
    const group = groups.get(key) ?? { ruled, isApart, changes: [] };
    group.changes.push(change);
    groups.set(key, group);
  }
  return [...groups.values()]
    .flatMap(({ ruled, isApart, changes }): Group[] => {
      // Else a rule on deletions at one path would decide on a write there and a deletion elsewhere.
      if (ruledBy(changes) === ruled) return [{ ruled, isApart, changes }];
      return [false, true].map((removes) => ({
        ruled,
        isApart,
        changes: changes.filter(({ kind }) => (kind === "delete") === removes),
      }));
    })
    .toSorted((a, b) => turnOf(a) - turnOf(b));
}

function turnOf({ ruled, isApart }: Group): number {
  return ruled !== FOR_A_PERSON ? 0 : isApart ? 1 : 2;
}

/** A deletion that makes room for a withheld creation is withheld too: else nothing would be in its place. */
function withWhatGivesWay(decisions: Map<number, Decision>, changes: readonly Change[]): Map<number, Decision> {
  const withheld = new Map<string, Decision>();
  for (const change of changes) {
    const decision = decisions.get(change.index);
    if (change.kind === "create" && decision !== undefined && decision.outcome !== "approved")
      withheld.set(placesAbove(change)[0], decision);
  }
  for (const change of changes) {
    if (change.kind !== "delete" || withheld.size === 0) continue;
    const decision = placesAbove(change).flatMap((place) => withheld.get(place) ?? [])[0];
    const own = decisions.get(change.index);
    if (decision !== undefined && (own === undefined || own.outcome === "approved"))
      decisions.set(change.index, decision);
  }
  return decisions;
}

function requestFor(
  changes: readonly Change[],
  { run, root, worker, path }: ChangingRun,
  apart: ReadonlyMap<number, string>,
): ApprovalRequest {
  const hostExecuted = changes.flatMap((change): HostExecuted[] => {
    const executed = apart.get(change.index);
    return executed === undefined ? [] : [{ path: change.path, why: executed }];
  });
  const operations = (["write", "delete"] as const).filter((operation) =>
    changes.some((change) => isA(operation, change)),
  );
  const why = "The run made these changes.";
  return {
    run,
    root,
    worker: worker.name,
    ...present({ through: path }),
    operations,
    paths: changes.map((change) => change.path),
    ...(hostExecuted.length === 0 ? {} : { hostExecuted }),
    why,
  };
}

function isA(operation: "write" | "delete", { kind }: Change): boolean {
  return (kind === "delete") === (operation === "delete");
}
