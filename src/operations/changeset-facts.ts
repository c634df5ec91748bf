import type { Approver, Decision } from "../approval/approver.ts";
import type { Change, ChangeOutcome, Changeset } from "../changes/model/changeset.ts";
import type { Project } from "../declarations/project.ts";
import type { ApprovalMode } from "../sandbox/approval.ts";
import type { Foreseen, ForeseenPart } from "./foreseen-changes.ts";

/** One changeset in a list. `ok: false`: its record cannot be read, so its project is not known. */
export type ListedChangeset =
  | (Pick<Changeset, "id" | "run" | "worker" | "project" | "createdAt"> & {
      readonly ok: true;
      /** A process applies it at this moment. */
      readonly applying: boolean;
      /** How many changes have which outcome. */
      readonly counts: Readonly<Record<string, number>>;
    })
  | { readonly ok: false; readonly id: string; readonly reason: string };

/** One change of a kept changeset. */
export interface KeptChange extends Pick<Change, "index" | "path" | "kind" | "type"> {
  /** Size of a file that was written, in bytes; otherwise null. */
  readonly bytes: number | null;
  readonly outcome: ChangeOutcome;
  /** Why it waits or was not applied; null if there is no reason to report. */
  readonly reason: string | null;
  /** Why a program of the host would act on it by itself, so that no general yes covers it; null: none would. */
  readonly hostExecuted: string | null;
}

export interface ShownChangeset extends Pick<Changeset, "id" | "run" | "root" | "worker" | "project" | "createdAt"> {
  /** For `apply`, so that a decision is on what was shown. */
  readonly digest: string;
  /** The changed directories: as the worker saw them, and on the host. */
  readonly mounts: readonly { readonly path: string; readonly host: string }[];
  readonly changes: readonly KeptChange[];
  /** Commits of git that the worker made there and that wait, in words. They are the worker's own. */
  readonly commits: readonly string[];
  /** What of the names in it may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
}

/** Whom `apply` asks: as a run of the project would. Absent fields: the project's mode, with no person to ask. */
export interface ApplyApproval {
  readonly approvalMode?: ApprovalMode;
  readonly approver?: Approver;
  readonly person?: Approver;
}

export interface ApplyRequest {
  /** Only changes at or below these paths, and the directories that they need. Absent: all; an empty list: none. */
  readonly only?: readonly string[];
  /** In place of `only`: the changes of these indexes, and the directories that they need. */
  readonly which?: readonly number[];
  /** The digest of what was shown: nothing is applied if the changeset has another one now. Absent: that of this moment. */
  readonly digest?: string;
  /**
   * `agreed`: the caller has already agreed to all of it, so no person is asked; rules of the project that deny still deny.
   * A function is called once for each project.
   */
  readonly approval: "agreed" | ((project: Project) => ApplyApproval);
  /**
   * The paths of changes with `hostExecuted` that a person has agreed to, each by itself. Others of this kind wait, if this is given or
   * `approval` is `agreed`; else the question about them is apart.
   */
  readonly hostExecuted?: readonly string[];
  readonly signal?: AbortSignal;
  /** Who applies it, for the audit trail, such as the token of a service. */
  readonly by?: string;
}

/** What `apply` did with one changeset. */
export interface AppliedChangeset {
  readonly id: string;
  /** Every change that was asked for. `denied`, and `held` if there was no answer in time: not applied, and still kept. */
  readonly changes: readonly AppliedChange[];
  /** How many changes are still kept. */
  readonly left: number;
}

export type AppliedChange = Omit<KeptChange, "bytes" | "hostExecuted">;

/** A changeset as it is reviewed. `digest`: what `apply` compares, so that a decision is on what was shown. */
export interface ForeseenChangeset extends Omit<Foreseen, "parts">, Pick<Changeset, "id" | "worker" | "project"> {
  readonly digest: string;
  /** How many changes can still be applied. */
  readonly waiting: number;
  /** The project's approval mode. */
  readonly mode: ApprovalMode;
  readonly parts: readonly RuledPart[];
  /** Commits of git that the worker made there and that wait, in words. They are the worker's own. */
  readonly commits: readonly string[];
  /** What of the names in it may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
}

/** `ruled`: the decision of the project's rules; null: a person decides. */
export interface RuledPart extends ForeseenPart {
  readonly ruled: Decision | null;
}
