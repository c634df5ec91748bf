import type { ApprovalRequest, Decision } from "../approval/approver.ts";

/** Whose run a record is of. */
export interface AuditedRun {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
}

/**
 * What the trail is told. The trail adds the place in the chain and the time, and cuts what is too long.
 *
 * It is read by the owner of the machine, so host paths may stand in it. Never in it: what files hold, what workers read
 * or print, and anything of the host's environment.
 */
export type AuditRecord =
  | RunRequested
  | RunStarted
  | AgentStarted
  | ToolUsed
  | RunEnded
  | Refused
  | ApprovalDecided
  | Granted
  | GrantRevoked
  | ChangesApplying
  | ChangesApplied
  | ChangesDiscarded
  | Pushed;

/** Every type of record; `repaired` is the trail's own. */
export const AUDIT_TYPES = [
  "run_requested",
  "run_started",
  "agent_started",
  "tool_used",
  "run_ended",
  "refused",
  "approval",
  "grant",
  "grant_revoked",
  "changes_applying",
  "changes_applied",
  "changes_discarded",
  "pushed",
  "repaired",
] as const satisfies readonly (AuditRecord["type"] | "repaired")[];

export interface RunRequested extends AuditedRun {
  readonly type: "run_requested";
  /** The run that called it; null for a root run. */
  readonly parent: string | null;
  /** Names of its attachments. */
  readonly attachments: readonly string[];
}

/** Its cell was verified, and the worker may begin. */
export interface RunStarted extends AuditedRun {
  readonly type: "run_started";
  /** The plan's hash, as on the cell's label. */
  readonly plan: string;
  readonly policy: string;
  readonly image: { readonly name: string; readonly id: string };
  readonly network: string;
  readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
}

/** An agent begins; its cell, if it needs one, is a `run_started` of its own. */
export interface AgentStarted extends AuditedRun {
  readonly type: "agent_started";
  readonly model: string;
  readonly tools: readonly string[];
  readonly policy: string;
  readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
}

/** What an agent, a person or a program did with a tool. */
export interface ToolUsed extends AuditedRun {
  readonly type: "tool_used";
  readonly tool: string;
  /** What it was used on, by the names of its input: paths, a command line, a worker. */
  readonly on: Readonly<Record<string, string>>;
  readonly ok: boolean;
  /** How the command or the worker ended, where it was one. */
  readonly status?: string | undefined;
  readonly exitCode?: number | null | undefined;
  /** Why it was refused. */
  readonly code?: string | undefined;
  readonly message?: string | undefined;
  /** Set where this is the last that is recorded, for its session has had too many. */
  readonly note?: string | undefined;
}

/** What became of a run that was not refused. */
export interface RunEnded extends AuditedRun {
  readonly type: "run_ended";
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** The code of its error, and of each of its violations. */
  readonly codes: readonly string[];
  /** How many of its changes had which outcome. */
  readonly changes: Readonly<Record<string, number>>;
  readonly durationMs: number;
}

/** A run that was refused: every reason, by its code and in words. */
export interface Refused extends AuditedRun {
  readonly type: "refused";
  readonly codes: readonly string[];
  readonly messages: readonly string[];
}

/** What somebody, or a rule, was asked to agree to, and the answer. Paths are virtual. */
export interface ApprovalDecided extends AuditedRun {
  readonly type: "approval";
  readonly through?: readonly string[] | undefined;
  readonly operations: readonly string[];
  readonly paths: readonly string[];
  readonly directory?: string | undefined;
  readonly command?: string | undefined;
  readonly why?: string | undefined;
  readonly outcome: Decision["outcome"];
  readonly scope: string;
  readonly reason: string;
  /** From the question to the answer. */
  readonly waitedMs: number;
  /** Set where this is the last that is recorded of its kind, for its tree has had too many. */
  readonly note?: string | undefined;
}

/** A directory that was granted to a run beyond its declaration. */
export interface Granted extends AuditedRun {
  readonly type: "grant";
  readonly grant: string;
  /** Virtual; `host` is where that is. */
  readonly directory: string;
  readonly host: string | null;
  readonly mode: "ro" | "rw";
  readonly scope: string;
  /** The workers whose sandbox it widens, from the root run down. */
  readonly levels: readonly string[];
}

export interface GrantRevoked extends AuditedRun {
  readonly type: "grant_revoked";
  readonly grant: string;
  readonly directory: string;
  /** Why, or by whom. */
  readonly reason: string;
}

/** One change of a changeset. The path is virtual. */
export interface AuditedChange {
  readonly path: string;
  readonly kind: string;
  readonly outcome: string;
}

/** What is about to be applied; written before the first file is touched. */
export interface ChangesApplying extends AuditedRun {
  readonly type: "changes_applying";
  readonly changeset: string;
  readonly count: number;
  readonly changes: readonly Omit<AuditedChange, "outcome">[];
}

export interface ChangesApplied extends AuditedRun {
  readonly type: "changes_applied";
  readonly changeset: string;
  /** How many changes had which outcome. */
  readonly counts: Readonly<Record<string, number>>;
  readonly changes: readonly AuditedChange[];
}

export interface ChangesDiscarded extends AuditedRun {
  readonly type: "changes_discarded";
  readonly changeset: string;
  readonly count: number;
  readonly changes: readonly Omit<AuditedChange, "outcome">[];
}

/** What left the machine. */
export interface Pushed extends AuditedRun {
  readonly type: "pushed";
  readonly repo: string;
  readonly commit: string;
  readonly branch: string;
  readonly files: readonly string[];
}

export function approvalDecided(
  { run, root, worker, through, operations, paths, directory, command, why }: ApprovalRequest,
  { outcome, scope, reason }: Decision,
  waitedMs: number,
): ApprovalDecided {
  const asked = { through, operations, paths, directory, command, why };
  return { type: "approval", run, root, worker, ...asked, outcome, scope, reason, waitedMs };
}

type AuditedChangeset = AuditedRun & { readonly id: string };

export function changesApplying(
  { id, run, root, worker }: AuditedChangeset,
  changes: readonly Omit<AuditedChange, "outcome">[],
): ChangesApplying {
  const listed = changes.map(({ path, kind }) => ({ path, kind }));
  return { type: "changes_applying", run, root, worker, changeset: id, count: changes.length, changes: listed };
}

export function changesApplied(
  { id, run, root, worker }: AuditedChangeset,
  changes: readonly AuditedChange[],
): ChangesApplied {
  const listed = changes.map(({ path, kind, outcome }) => ({ path, kind, outcome }));
  const counts = outcomeCounts(changes);
  return { type: "changes_applied", run, root, worker, changeset: id, counts, changes: listed };
}

export function changesDiscarded(
  { id, run, root, worker }: AuditedChangeset,
  changes: readonly Omit<AuditedChange, "outcome">[],
): ChangesDiscarded {
  const listed = changes.map(({ path, kind }) => ({ path, kind }));
  return { type: "changes_discarded", run, root, worker, changeset: id, count: changes.length, changes: listed };
}

export function outcomeCounts(changes: readonly { readonly outcome?: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome = "unknown" } of changes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}
