export type ApprovalOperation = "write" | "delete" | "exec";

/** What a person is asked to agree to. Paths are virtual. */
export interface ApprovalRequest {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  readonly operations: readonly ApprovalOperation[];
  /** What is written or deleted, or below what. */
  readonly paths: readonly string[];
  /** The command line, where one is to be run. */
  readonly command?: string;
}

/** `timed_out` is told apart from `denied`: nobody said no. Only approvals may be remembered, never denials. */
export interface Decision {
  readonly outcome: "approved" | "denied" | "timed_out";
  readonly scope: "once" | "session";
  /** Why, in words for the worker's caller. */
  readonly reason: string;
}

/** Who decides. `blocked` is never asked: no approver can allow it. */
export interface Approver {
  decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision>;
}

export type ApprovalMode = "interactive" | "approve_all" | "auto_deny";

export const approveAll: Approver = {
  decide: async () => ({
    outcome: "approved",
    scope: "session",
    reason: "everything that may be asked for is approved",
  }),
};

export const autoDeny: Approver = {
  decide: async () => ({ outcome: "denied", scope: "once", reason: "the approval mode is auto_deny" }),
};

/** For the mode `interactive` where there is nobody to ask. */
export const headless: Approver = {
  decide: async () => ({
    outcome: "denied",
    scope: "once",
    reason: "the approval mode is interactive, and there is no terminal to ask at",
  }),
};
