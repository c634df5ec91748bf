import type { ApprovalRequest, Decision } from "../approval/approver.ts";
import type { NetworkReport } from "../sandbox/network/judge.ts";

/** The run of a record. */
export interface AuditedRun {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
}

/** What the records of each type hold, in addition to their run. */
interface Contents {
  run_requested: {
    /** The calling run. Null for a root run. */
    readonly parent: string | null;
    /** The names of its attachments. */
    readonly attachments: readonly string[];
    /** The command that has no project, or the arguments that a user appended to a worker's. */
    readonly arguments?: readonly string[] | undefined;
    /** The run of the same agent whose conversation it continues. */
    readonly continues?: string | undefined;
  };
  /** The cell was verified, and the worker starts. */
  run_started: {
    /** The hash of the plan, as on the cell's label. */
    readonly plan: string;
    /** What made the cell: `engine` or `runc`. Absent in records of versions that had the Engine alone. */
    readonly driver?: string | undefined;
    readonly policy: string;
    readonly image: { readonly name: string; readonly id: string };
    /** The packages that were prepared for it. */
    readonly environments?: readonly { readonly kind: "pip" | "npm"; readonly digest: string }[] | undefined;
    /** `none`, `open`, or the hosts of its allow list. */
    readonly network: string;
    readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
  };
  /** An agent starts. Its cell, if it needs one, has its own `run_started`. */
  agent_started: {
    readonly model: string;
    readonly tools: readonly string[];
    readonly policy: string;
    readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
  };
  /** A tool call by an agent, a person or a program. */
  tool_used: {
    readonly tool: string;
    /** The main fields of its input: paths, a command line, a worker. */
    readonly on: Readonly<Record<string, string>>;
    readonly ok: boolean;
    /** The status of the command or the called worker, if it was one. */
    readonly status?: string | undefined;
    readonly exitCode?: number | null | undefined;
    /** Why it was refused. */
    readonly code?: string | undefined;
    readonly message?: string | undefined;
    /** Set if this is the last record of its session, which reached the limit. */
    readonly note?: string | undefined;
  };
  /** The result of a run that was not refused. */
  run_ended: {
    readonly status: string;
    readonly exitCode: number | null;
    readonly signal: string | null;
    /** The code of its error, and of each of its violations. */
    readonly codes: readonly string[];
    /** The number of its changes for each outcome. */
    readonly changes: Readonly<Record<string, number>>;
    readonly durationMs: number;
  };
  /** A refused run, with the code and the message of every reason. */
  refused: { readonly codes: readonly string[]; readonly messages: readonly string[] };
  /** An approval request and its decision, by a person, a program or a rule. Paths are virtual. */
  approval: Pick<ApprovalRequest, "operations" | "paths"> &
    Omit<Decision, "directory" | "by"> & {
      readonly [Name in "through" | "directory" | "to" | "command" | "why"]?: ApprovalRequest[Name] | undefined;
    } & {
      /** Who decided in the inbox: the name of a user or of a token. */
      readonly by?: string | undefined;
      /** The time from the request to the decision. */
      readonly waitedMs: number;
      /** Set if this is the last such record of its tree of runs, which reached the limit. */
      readonly note?: string | undefined;
    };
  /** A directory, or a host of the network, that was granted to a run beyond its declaration. */
  grant: {
    readonly grant: string;
    readonly scope: string;
    /** The workers whose sandbox is widened, from the root run downwards. */
    readonly levels: readonly string[];
  } & (
    | {
        /** Virtual; `host` is its host path. */
        readonly directory: string;
        readonly host: string | null;
        readonly mode: "ro" | "rw";
      }
    | {
        /** `host:port`. */
        readonly to: string;
      }
  );
  /** `reason`: why it was revoked, or by whom. */
  grant_revoked: { readonly grant: string; readonly reason: string } & (
    | { readonly directory: string }
    | { readonly to: string }
  );
  /** Changes that are about to be applied. Written before the first file is touched. */
  changes_applying: OpenChanges;
  changes_applied: {
    readonly changeset: string;
    /** The number of changes for each outcome. */
    readonly counts: Readonly<Record<string, number>>;
    readonly changes: readonly AuditedChange[];
    readonly by?: string | undefined;
  };
  changes_discarded: OpenChanges & {
    /** Why Corral itself discarded them: the run does not count. Absent: a user or a program did it. */
    readonly reason?: string | undefined;
  };
  /**
   * What a run did on its network: the whole at its end, or at once the first refusal of a host. Without contents; each list has
   * at most 50 entries, the most frequent first.
   */
  egress: {
    readonly allowed: NetworkReport["allowed"];
    readonly denied: NetworkReport["denied"];
    /** How many further hosts there were. */
    readonly unlisted: number;
    /** False for a single refusal while the run continues. */
    readonly whole: boolean;
  };
  /** A push: data left the machine. */
  pushed: {
    readonly repo: string;
    readonly commit: string;
    readonly branch: string;
    readonly files: readonly string[];
  };
}

/** One change of a changeset. The path is virtual. */
interface AuditedChange {
  readonly path: string;
  readonly kind: string;
  readonly outcome: string;
}

/** Changes without an outcome. */
interface OpenChanges {
  readonly changeset: string;
  readonly count: number;
  readonly changes: readonly Omit<AuditedChange, "outcome">[];
  /** The token of the service that applied or discarded them. */
  readonly by?: string | undefined;
}

/**
 * A record for the trail. The trail adds its number, hash and time, and cuts what is too long.
 *
 * The reader is the owner of the machine, so a record may hold host paths. It never holds the content of files, what workers
 * read or print, or anything of the host's environment.
 */
export type AuditRecord = { [Type in keyof Contents]: RecordOf<Type> }[keyof Contents];

export type RecordOf<Type extends keyof Contents> = AuditedRun & { readonly type: Type } & Contents[Type];

/** Every type of record. The trail itself writes `repaired`. */
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
  "egress",
  "pushed",
  "repaired",
] as const satisfies readonly (keyof Contents | "repaired")[];

export function approvalDecided(
  { run, root, worker, through, operations, paths, directory, to, callee, command, why }: ApprovalRequest,
  { outcome, scope, reason, by }: Decision,
  waitedMs: number,
): RecordOf<"approval"> {
  const asked = { through, operations, paths, directory, to, callee, command, why };
  return { type: "approval", run, root, worker, ...asked, outcome, scope, reason, by, waitedMs };
}

const MAX_EGRESS_ENTRIES = 50;

export function networkUsed(of: AuditedRun, { allowed, denied, unlisted }: NetworkReport): RecordOf<"egress"> {
  const [some, others] = [allowed.slice(0, MAX_EGRESS_ENTRIES), denied.slice(0, MAX_EGRESS_ENTRIES)];
  const further = unlisted + allowed.length - some.length + denied.length - others.length;
  return { type: "egress", ...of, allowed: some, denied: others, unlisted: further, whole: true };
}

type AuditedChangeset = AuditedRun & { readonly id: string };

export function changesApplying(
  of: AuditedChangeset,
  changes: OpenChanges["changes"],
  by?: string,
): RecordOf<"changes_applying"> {
  return { type: "changes_applying", ...openChanges(of, changes), by };
}

export function changesDiscarded(
  of: AuditedChangeset,
  changes: OpenChanges["changes"],
  by?: string,
  reason?: string,
): RecordOf<"changes_discarded"> {
  return { type: "changes_discarded", ...openChanges(of, changes), by, reason };
}

function openChanges(
  { id, run, root, worker }: AuditedChangeset,
  changes: OpenChanges["changes"],
): AuditedRun & OpenChanges {
  const listed = changes.map(({ path, kind }) => ({ path, kind }));
  return { run, root, worker, changeset: id, count: changes.length, changes: listed };
}

export function changesApplied(
  { id, run, root, worker }: AuditedChangeset,
  changes: readonly AuditedChange[],
  by?: string,
): RecordOf<"changes_applied"> {
  const listed = changes.map(({ path, kind, outcome }) => ({ path, kind, outcome }));
  const counts = outcomeCounts(changes);
  return { type: "changes_applied", run, root, worker, changeset: id, counts, changes: listed, by };
}

export function outcomeCounts(changes: readonly { readonly outcome?: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome = "unknown" } of changes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}
