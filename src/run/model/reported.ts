import type { Change, ChangeOutcome, Changeset } from "../../changes/model/changeset.ts";
import type { Violation } from "../../sandbox/violation.ts";

/** One change as a run's result reports it. */
export interface ReportedChange {
  readonly path: string;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  /** Of a file that was written, in bytes; else null. */
  readonly bytes: number | null;
  readonly outcome: ChangeOutcome;
  /** Null if it was applied. */
  readonly reason: string | null;
}

/** The outcomes of all changes of a run; its `changes` may be fewer. */
export interface ReportedChangeset {
  /** Its id for `corral changes`; null if nothing waits there. */
  readonly id: string | null;
  readonly counts: Readonly<Record<ChangeOutcome, number>>;
}

/** More changes than this are counted, and not listed. */
export const MAX_REPORTED = 1000;
/** More refused changes than this are not listed one by one. */
const MAX_VIOLATIONS = 50;

export interface DecidedChange {
  readonly change: Change;
  readonly outcome: ChangeOutcome;
  readonly reason: string | null;
}

export function reported(outcomes: readonly DecidedChange[]): ReportedChange[] {
  // What needs attention comes first, for the list may be cut.
  const first = outcomes.toSorted((a, b) => Number(a.outcome === "applied") - Number(b.outcome === "applied"));
  return first.slice(0, MAX_REPORTED).map(({ change, outcome, reason }) => ({
    path: change.path,
    kind: change.kind,
    type: change.type,
    bytes: change.kind !== "delete" && change.type === "file" ? (change.next?.size ?? null) : null,
    outcome,
    reason,
  }));
}

export function countsByOutcome(outcomes: readonly DecidedChange[]): Record<ChangeOutcome, number> {
  const counts = { applied: 0, refused: 0, conflict: 0, denied: 0, held: 0 };
  for (const { outcome } of outcomes) counts[outcome] += 1;
  return counts;
}

/** Why changes were not applied, unless a person decided so. */
export function violationsOf(outcomes: readonly DecidedChange[]): Violation[] {
  return outcomes
    .flatMap(({ change: { path }, outcome, reason }): Violation[] => {
      if (outcome === "refused") return [{ code: "CHANGE_REFUSED", path, reason: reason ?? "it is not allowed" }];
      if (outcome === "conflict") return [{ code: "CHANGE_CONFLICT", path, reason: reason ?? "it was changed since" }];
      return [];
    })
    .slice(0, MAX_VIOLATIONS);
}

/** The store from which the changes of root runs are applied, and in which they wait. After a crash, applying resumes from it. */
export interface ChangesetKeeper {
  /**
   * Takes over the changeset and its content: it waits until a person applies or discards it. `reason`: for that person. `before`: called
   * when no other process can work on it any more; nothing is kept if it rejects.
   */
  keep(changeset: Changeset, state: ChangeOutcome, reason: string, before?: () => Promise<void>): Promise<void>;
  /** Applies the changes of these indexes; what cannot be is kept. In the order of the changeset, one outcome for each index. */
  apply(changeset: Changeset, indexes: ReadonlySet<number>, beginning?: Beginning): Promise<DecidedChange[]>;
}

/** What has to know that files are about to be changed. By then the changes are kept, so that another process can apply them. */
export interface Beginning {
  /** The indexes of changes that are refused: they are kept too, so that the outcome of all can be reported later. */
  readonly refused: readonly number[];
  /** Why nothing may be changed; null: it may. */
  readonly begin: () => Promise<NotBegun | null>;
}

/** Why nothing may be changed. `isInherited`: another process continues with what is kept, which stays; else it is removed. */
export interface NotBegun {
  readonly reason: string;
  readonly isInherited: boolean;
}

/** The outcomes of a run's changes, as another process than its own found or made them. */
export interface FinishedChanges {
  readonly outcomes: readonly DecidedChange[];
  /** True if some wait for `corral changes`. */
  readonly kept: boolean;
}

/** Where the changes of root runs wait. */
export interface KeptChangesets extends ChangesetKeeper {
  /**
   * Removes what waits of root runs that do not count, and of the runs that they called. `reason`: for the audit trail. What was
   * applied stays. Does nothing if none waits, or if another process works on it. Reads the state of everything that waits, once.
   */
  withdraw(runs: readonly string[], reason: string): Promise<void>;
  /** The same for the own changes of one run alone, and quick however many others wait. `before`: as with {@link keep}. */
  drop(run: string, reason: string, before?: () => Promise<void>): Promise<void>;
  /**
   * Completes the application that a root run had begun whose process died. Null: all that was agreed to was applied, and nothing
   * waits. `broken`: why it can never be completed. Rejects if it cannot be now. Its outcome stays known until {@link forget}.
   */
  finish(run: string): Promise<FinishedChanges | { readonly broken: string } | null>;
  /** The end of this run is recorded elsewhere. */
  forget(run: string): Promise<void>;
}
