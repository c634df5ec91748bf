export type ApprovalOperation = "write" | "delete" | "exec" | "grant_read" | "grant_write" | "push";

/** What a person is asked to agree to. All that is optional is for those who decide to know more. */
export interface ApprovalRequest {
  readonly run: string;
  /** The root run of the tree that `run` is in. */
  readonly root: string;
  readonly worker: string;
  /** The workers from the root run down to the one that asks, that one included. */
  readonly through?: readonly string[];
  readonly operations: readonly ApprovalOperation[];
  /** What is written, deleted or pushed, or below what. Virtual; a changeset may have thousands. */
  readonly paths: readonly string[];
  /** For grants: the directory that is asked for. */
  readonly directory?: string;
  /** The command line, where one is to be run, with all that is given to it. */
  readonly command?: string;
  /** The command line by itself, where `command` shows more beside it; rules that deny are held against it. */
  readonly line?: string;
  /** What it is for, in one sentence; often in words of the worker, which may lie. */
  readonly why?: string;
  /** A unified diff of what would be written. It may be long. */
  readonly diff?: string;
  /** Nothing is done with it now, so agreeing to it once would be of no use. */
  readonly lastingOnly?: true;
}

/** `once`: for what was asked. `tree`: while this tree of runs lasts. `session`: while this process lasts. */
export type ApprovalScope = "once" | "tree" | "session";

/** `timed_out` is told apart from `denied`: nobody said no. Only approvals may be remembered, never denials. */
export interface Decision {
  readonly outcome: "approved" | "denied" | "timed_out";
  readonly scope: ApprovalScope;
  /** Why, in words for the worker's caller. */
  readonly reason: string;
}

/** Who decides. `blocked` is never asked: no approver can allow it. */
export interface Approver {
  decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision>;
}

export type ApprovalMode = "interactive" | "approve_all" | "auto_deny";

export function denied(reason: string): Decision {
  return { outcome: "denied", scope: "once", reason };
}

/** What takes effect beyond what the project declared: nobody agrees to it without having looked. */
export function reachesOut(operation: ApprovalOperation): boolean {
  return operation === "push" || isGrant(operation);
}

export function isGrant(operation: ApprovalOperation): boolean {
  return operation === "grant_read" || operation === "grant_write";
}

/** For whoever trusts a project's declarations. Grants and pushes go beyond them, so it does not cover those. */
export const approveAll: Approver = {
  decide: async ({ operations }) =>
    operations.some(reachesOut)
      ? denied("the approval mode approve_all covers neither grants nor pushes; a rule of the project may approve them")
      : { outcome: "approved", scope: "session", reason: "everything that may be asked for is approved" },
};

export const autoDeny: Approver = {
  decide: async () => denied("the approval mode is auto_deny"),
};

/** For the mode `interactive` where there is nobody to ask. */
export const headless: Approver = {
  decide: async () => denied("the approval mode is interactive, and there is no terminal to ask at"),
};
