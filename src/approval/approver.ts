import { createHash } from "node:crypto";
import type { APPROVAL_OPERATIONS, HostExecuted } from "../sandbox/approval.ts";

export type ApprovalOperation = (typeof APPROVAL_OPERATIONS)[number];

/** A request for a person's approval. Optional fields give more information for the decision. */
export interface ApprovalRequest {
  readonly run: string;
  /** The root run of the tree that `run` is in. */
  readonly root: string;
  readonly worker: string;
  /** The workers from the root run down to the one that asks, inclusive. */
  readonly through?: readonly string[];
  readonly operations: readonly ApprovalOperation[];
  /** Virtual paths that are written, deleted or pushed, or directories of such paths. A changeset may have thousands. */
  readonly paths: readonly string[];
  /** For grants of directories: the requested one. */
  readonly directory?: string;
  /** For `grant_network`: the requested host and port, in canonical form. */
  readonly to?: string;
  /** For `grant_network`: what the worker may reach already; at most 20. */
  readonly reaches?: readonly string[];
  /** For calls: the worker that would be called. */
  readonly callee?: string;
  /** For calls: its input as JSON, cut if it is long. */
  readonly input?: string;
  /** For grants: directories around it that the user may grant instead, the nearest first. */
  readonly wider?: readonly string[];
  /** For commands: the command line, with everything that is passed to it. */
  readonly command?: string;
  /** The command line alone, if `command` shows more than it. Rules that deny are checked against it. */
  readonly line?: string;
  /** What of the paths programs of the host would execute: shown first, and no general yes covers it. Absent: nothing. */
  readonly hostExecuted?: readonly HostExecuted[];
  /** The purpose, in one sentence. Often written by the worker, so it may be false. */
  readonly why?: string;
  /** A unified diff of the change. It may be long. */
  readonly diff?: string;
  /** The run is on another machine of this name, which has written all texts of the question. */
  readonly machine?: string;
  /** Nothing is done with the approval now, so approving once would have no effect. */
  readonly lastingOnly?: true;
}

/** `once`: for this request. `tree`: until this tree of runs ends. `session`: until this process ends. */
export type ApprovalScope = "once" | "tree" | "session";

/** `timed_out` differs from `denied`: no answer came. Only approvals are remembered, never denials. */
export interface Decision {
  readonly outcome: "approved" | "denied" | "timed_out";
  readonly scope: ApprovalScope;
  /** The reason, for the worker's caller. */
  readonly reason: string;
  /** For grants: the directory that was granted, if it is one of `wider`. */
  readonly directory?: string;
  /** Of a denial: no person was asked and no rule decided, so what waits can still be approved. */
  readonly unasked?: true;
  /** Who decided in the inbox, such as the name of a user or of a token. */
  readonly by?: string;
}

/** Decides requests. Operations with consent `blocked` never reach it: no approver can allow them. */
export interface Approver {
  decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision>;
}

export function denied(reason: string): Decision {
  return { outcome: "denied", scope: "once", reason };
}

/** A denial because no user can be asked. A change that can wait for an answer waits. */
export function unasked(reason: string): Decision {
  return { ...denied(reason), unasked: true };
}

/** True for operations that go beyond the project's declarations. They are never approved automatically. */
export function reachesOut(operation: ApprovalOperation): boolean {
  return operation === "push" || isGrant(operation);
}

/** True for requests that only a person decides, for this once: no rule, mode or earlier answer approves them. */
export function isHostExecuted({ hostExecuted = [] }: Pick<ApprovalRequest, "hostExecuted">): boolean {
  return hostExecuted.length > 0;
}

export function isGrant(operation: ApprovalOperation): boolean {
  return operation === "grant_read" || operation === "grant_write" || operation === "grant_network";
}

/** For users who trust a project's declarations. Grants and pushes go beyond these, so it denies them. */
export const approveAll: Approver = {
  decide: async ({ operations, hostExecuted = [] }) => {
    const [first] = hostExecuted;
    if (first !== undefined) return unasked(whyNotCovered(first, "the approval mode approve_all"));
    return operations.some(reachesOut)
      ? denied(
          "the approval mode approve_all does not cover grants and pushes; add an approval rule to the project for them",
        )
      : { outcome: "approved", scope: "session", reason: "the approval mode is approve_all" };
  },
};

/** `general`: the yes that was given. */
export function whyNotCovered({ why }: HostExecuted, general: string): string {
  return `${why}, which ${general} does not cover: a person has to agree to it by itself, or the policy says \`host_executed: allow\``;
}

export const autoDeny: Approver = {
  decide: async () => denied("the approval mode is auto_deny"),
};

/** For the mode `interactive` on a command line without a terminal. */
export const noTerminal: Approver = {
  decide: async () => unasked("the approval mode is interactive, but there is no terminal for the question"),
};

/** For the mode `interactive` in a program that set none. */
export const noApprover: Approver = {
  decide: async () =>
    unasked("the approval mode is interactive, but no approver is set; set `approver` when the project is opened"),
};

/** For the mode `interactive` at an end that waits for nobody. */
export const leftWaiting: Approver = {
  decide: async () => unasked("it was ended without asking: what needs consent waits"),
};

/** A person's answer. `interrupt`: stop everything. */
export type Answer = "once" | "tree" | "session" | "no" | "interrupt";

/** The first of the requests that share this question. */
export interface Question extends ApprovalRequest {
  /** Runs that wait for the answer when the question is asked. Runs with the same question may still join. */
  readonly runs: number;
  /** Those runs, `run` first, with the roots of their trees: each may have a user of its own. */
  readonly waiting: readonly { readonly run: string; readonly root: string }[];
}

/** Asks one question. Rejects when the signal is aborted. */
export type Ask = (question: Question, signal: AbortSignal) => Promise<Answer | Decision>;

/** Requests share a question only if everything that a person reads is the same, above all the command line. */
export function questionKey(request: ApprovalRequest): string {
  const { worker, through, operations, paths, directory, wider, callee, input, command, why, diff, lastingOnly } =
    request;
  const { to, reaches, machine, hostExecuted } = request;
  const read = [
    worker,
    through,
    operations.toSorted(),
    paths.toSorted(),
    directory,
    wider,
    callee,
    input,
    command,
    why,
    diff,
    lastingOnly,
    to,
    reaches,
    machine,
    hostExecuted,
  ];
  return createHash("sha256")
    .update(JSON.stringify(read.map((part) => part ?? null)))
    .digest("base64");
}
