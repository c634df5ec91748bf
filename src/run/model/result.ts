import { constants } from "node:os";
import type { Change, ChangeOutcome, Changeset } from "../../changes/model/changeset.ts";
import type { Enforcement } from "../../isolation/plan/plan.ts";
import type { CellExit, CellUsage } from "../../isolation/port/cell.ts";
import type { NetworkReport } from "../../sandbox/network/judge.ts";
import { type ShownViolation, shownViolation, type Violation } from "../../sandbox/violation.ts";
import { describeViolation } from "../../sandbox/wording.ts";

/** Changes that were begun cannot be finished now: they stay as they are, with their fleet, until they can. The message says why. */
export class UnfinishedChanges extends Error {
  override readonly name = "UnfinishedChanges";
}

const STOP_REASONS = ["timed_out", "cancelled", "output_limit", "disk_limit"] as const;
/** Why Corral itself ended a run. */
export type StopReason = (typeof STOP_REASONS)[number];

/** How a run can end. */
export const RUN_STATUSES = [
  ...(["succeeded", "failed", "signaled", "oom_killed", "refused", "denied", "lost"] as const),
  ...STOP_REASONS,
] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** The result of a run: one shape for success and failure. Safe to show to the caller: it holds no host path. */
export interface RunResult {
  readonly run: string;
  readonly worker: string;
  readonly status: RunStatus;
  /** The worker's own; null if it ended otherwise, or if the engine did not report it. Never made up. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** The parsed standard output of a worker with `output: json`, else its text; null if it printed nothing. */
  readonly output: unknown;
  readonly stdout: string;
  readonly stderr: string;
  /** True if the worker wrote more than its output limit and the rest was dropped. */
  readonly truncated: boolean;
  readonly violations: readonly DescribedViolation[];
  /** The changes to staged mounts and their outcomes; at most 1,000, those that were not applied first. */
  readonly changes: readonly ReportedChange[];
  /** Counts over all of them; null if nothing was changed there. */
  readonly changeset: ReportedChangeset | null;
  /** From the request to the end, the cell's start and removal included. */
  readonly durationMs: number;
  readonly usage: CellUsage & {
    /** A process of the cell was killed for memory, the worker itself or another; null if it is not known. */
    readonly outOfMemory: boolean | null;
  };
  /** What it did on its network; absent without an allow list. */
  readonly network?: NetworkReport;
  /** What an agent used; absent for a command. */
  readonly agent?: AgentReport;
  /** Null if there was no cell, and for an agent, whose commands have cells of their own. */
  readonly enforcement: Enforcement | null;
  /** In the order in which they were asked for. Of more refused calls than `max_calls`, only so many are kept. */
  readonly calls: readonly RunResult[];
  /** What is wrong, for every status but `succeeded`, in words a caller can act on. */
  readonly error: RunError | null;
}

export interface AgentReport {
  /** As its file names it. */
  readonly model: string;
  /** Answers of the model. */
  readonly steps: number;
  /** Includes those of the agents that it called. `estimated`: a provider did not report all of them. */
  readonly tokens: { readonly input: number; readonly output: number; readonly estimated: boolean };
  /** In US dollars, including the agents that it called; null if the project gives no price for some of it. */
  readonly costUsd: number | null;
  /** The run whose conversation it continued. */
  readonly continues?: string;
}

export interface RunError {
  readonly code: string;
  readonly message: string;
}

export type DescribedViolation = ShownViolation & { readonly message: string };

export function describeAll(violations: readonly Violation[]): DescribedViolation[] {
  return violations.map((violation) => ({
    ...shownViolation(violation),
    message: describeViolation(violation),
  }));
}

export type Ending = Pick<RunResult, "status" | "exitCode" | "signal">;

/** The usual name comes first: Node also knows 6 as SIGIOT and 29 as SIGPOLL. */
const SIGNALS = new Map(
  Object.entries(constants.signals)
    .toReversed()
    .map(([name, number]) => [number as number, name]),
);

/**
 * How a run ended, from what the engine reported and what Corral itself did. A death by signal n is reported as exit code
 * 128+n (docs/facts.md, fact: init-needed). That a process was killed for memory says nothing of the worker
 * unless the worker itself died of it (fact: oom-of-a-child).
 */
export function endingOf(exit: CellExit, stopped: StopReason | null): Ending {
  if (exit.kind === "lost") return { status: "lost", exitCode: null, signal: null };
  const signal = exit.code > 128 && exit.bySignal !== false ? (SIGNALS.get(exit.code - 128) ?? null) : null;
  const exitCode = signal === null ? exit.code : null;
  if (stopped !== null) return { status: stopped, exitCode, signal };
  // A program that handles the signal may end with any code, also 0: it did not finish its work.
  if (exit.sent !== undefined) return { status: "signaled", exitCode, signal: signal ?? exit.sent };
  if (signal === "SIGKILL" && exit.outOfMemory) return { status: "oom_killed", exitCode, signal };
  // If its init did not say it, a program that ends with this code by itself looks the same: both are told.
  if (signal !== null) return { status: "signaled", exitCode: exit.bySignal === true ? null : exit.code, signal };
  return { status: exitCode === 0 ? "succeeded" : "failed", exitCode, signal };
}

type Who = Pick<RunResult, "run" | "worker">;

/** The result of a run that did not begin. */
export function unstartedResult({ run, worker }: Who, status: RunStatus, error: RunError): RunResult {
  return {
    run,
    worker,
    status,
    exitCode: null,
    signal: null,
    output: null,
    stdout: "",
    stderr: "",
    truncated: false,
    violations: [],
    changes: [],
    changeset: null,
    durationMs: 0,
    usage: { cpuMs: null, memoryBytesPeak: null, outOfMemory: null },
    enforcement: null,
    calls: [],
    error,
  };
}

/** The result of a run that ended because of a bug in Corral. It says nothing of the bug: workers may read it. */
export function brokenResult(who: Who): RunResult {
  const message = "An internal error in Corral ended this run. What it did before may remain.";
  return unstartedResult(who, "lost", { code: "INTERNAL", message });
}

/** The result of a run that was refused, with all violations. */
export function refusedResult(who: Who, violations: readonly Violation[]): RunResult {
  const described = describeAll(violations);
  return { ...unstartedResult(who, "refused", refusalError(described)), violations: described };
}

/** A text that names all violations. The code is that of a single violation, else `REFUSED`. */
export function refusalError(violations: readonly DescribedViolation[]): RunError {
  const message = violations.map((violation) => violation.message).join("\n");
  return { code: (violations.length === 1 ? violations[0]?.code : undefined) ?? "REFUSED", message };
}

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
const MAX_REPORTED = 1000;
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
interface Beginning {
  /** The indexes of changes that are refused: they are kept too, so that the outcome of all can be reported later. */
  readonly refused: readonly number[];
  /** Called before the changes are kept, while no other process can work on them: nothing is kept if it rejects. */
  readonly confirm?: () => Promise<void>;
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
