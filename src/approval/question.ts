import { createHash } from "node:crypto";
import type { ApprovalRequest, Decision } from "./approver.ts";

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
