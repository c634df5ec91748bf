import { createHash } from "node:crypto";
import type { ApprovalRequest, Decision } from "./approver.ts";

/** What a person may answer. `interrupt`: they want all of it to stop. */
export type Answer = "once" | "tree" | "session" | "no" | "interrupt";

/** The first of the requests that share a question. */
export interface Question extends ApprovalRequest {
  /** Runs that wait for this answer when it is put; others that ask exactly the same may still join them. */
  readonly runs: number;
}

/** Puts one question to whoever decides. Rejects when the signal is aborted. */
export type Ask = (question: Question, signal: AbortSignal) => Promise<Answer | Decision>;

/** Questions are equal where nothing that a person reads of them differs, a command line least of all. */
export function questionKey(request: ApprovalRequest): string {
  const { worker, through, operations, paths, directory, command, why, diff, lastingOnly } = request;
  const read = [worker, through, operations.toSorted(), paths.toSorted(), directory, command, why, diff, lastingOnly];
  return createHash("sha256")
    .update(JSON.stringify(read.map((part) => part ?? null)))
    .digest("base64");
}
