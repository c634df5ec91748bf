import { nearest } from "../declarations/yaml/issue.ts";
import type { DescribedViolation } from "../run/model/result.ts";
import { printableLine } from "../text/visible.ts";

export type RequestErrorCode =
  | "UNKNOWN_WORKER"
  | "UNKNOWN_FLEET"
  | "UNKNOWN_ITEM"
  | "UNKNOWN_CHANGESET"
  /** No change of the changeset waits at or below these paths. */
  | "UNKNOWN_CHANGE"
  | "UNKNOWN_RUN"
  | "UNKNOWN_GRANT"
  | "UNKNOWN_APPROVAL"
  /** Another one was faster, or no run waits for the answer any more. */
  | "ALREADY_DECIDED"
  /** The question is not the one that was shown. */
  | "QUESTION_CHANGED"
  /** The question cannot be answered like this. */
  | "WRONG_ANSWER"
  | "UNKNOWN_TRANSCRIPT"
  /** A prefix that more than one id begins with. */
  | "AMBIGUOUS_ID"
  /** The run cannot be continued: it has not ended, is another worker's, or is no agent's. */
  | "CONTINUE"
  | "UNKNOWN_IMAGE"
  /** A running cell uses it. */
  | "IMAGE_IN_USE"
  /** An image of a worker could not be built, pulled or prepared. */
  | "IMAGE_NOT_MADE"
  /** A filter names a value that nothing can have: a status of items, a type of records. */
  | "UNKNOWN_VALUE"
  /** A file to attach does not exist, or is not a regular file. */
  | "ATTACHMENT"
  /** The worker takes no arguments. */
  | "ARGUMENTS"
  /** The worker may not have what its file asks for. */
  | "WORKER_REFUSED"
  /** No item was run: the worker may not, the items are in each other's way, or the fleet's state does not allow it. */
  | "FLEET_REFUSED"
  /** A machine has nothing to take items from. */
  | "NO_QUEUE"
  /** The fleet still has items to run, so it cannot be removed. */
  | "FLEET_NOT_ENDED"
  /** The run is not over, so its record cannot be removed. */
  | "RUN_NOT_ENDED"
  /** Another process works on the changeset. */
  | "CHANGESET_BUSY"
  /** The changeset is not the one that was shown. */
  | "CHANGESET_CHANGED"
  /** The record of the changeset cannot be read. */
  | "CHANGESET_BROKEN";

/** An operation was asked for something that does not exist or cannot be done. Nothing has changed. The message may hold host paths. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly code: RequestErrorCode;
  /** The name, the id or the path that was asked for, as it was given. */
  readonly asked: string;
  /** Every violation, in code and in words; empty if no sandbox rule is the reason. */
  readonly violations: readonly DescribedViolation[];

  constructor(code: RequestErrorCode, asked: string, message: string, violations: readonly DescribedViolation[] = []) {
    super(message);
    this.code = code;
    this.asked = asked;
    this.violations = violations;
  }
}

/** `what`: the kind of thing, such as `worker`. The message names the nearest of `known`, or all of them. */
export function unknownError(
  code: RequestErrorCode,
  what: string,
  asked: string,
  known: readonly string[],
  none = "there are none",
): RequestError {
  const instead = nearest(asked, known) ?? (known.length === 0 ? `; ${none}` : `; there are: ${known.join(", ")}`);
  return new RequestError(code, asked, `there is no ${what} ${printableLine(asked, 80)}${instead}`);
}

export function refusedError(
  code: "WORKER_REFUSED" | "FLEET_REFUSED",
  asked: string,
  violations: readonly DescribedViolation[],
): RequestError {
  return new RequestError(code, asked, violations.map(({ message }) => message).join("\n"), violations);
}
