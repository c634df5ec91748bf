import { nearest } from "../declarations/yaml/shape.ts";
import type { DescribedViolation } from "../run/model/result.ts";
import { printableLine } from "../text/visible.ts";

/** One thing that a user can name by its id. */
export interface Nameable {
  readonly id: string;
  /** What sets it apart from others in the error of an ambiguous prefix, such as its worker and its time. */
  readonly about: string;
}

/** The newest thing of its kind, in place of an id. */
export const LATEST = "latest";

const MAX_CANDIDATES = 10;
/** So many that begin with a prefix are enough for {@link chosenId}; a source may leave out the others. */
export const ENOUGH_CANDIDATES = MAX_CANDIDATES + 1;

/**
 * The id that a user means: a whole one, a prefix that only one has, or `latest`. `known`: the newest first; those that do not
 * begin with what was asked for may be left out. `unknown`: the error if there is none.
 *
 * @throws RequestError AMBIGUOUS_ID, which lists the candidates
 */
export function chosenId(asked: string, known: readonly Nameable[], unknown: () => RequestError): string {
  if (asked === LATEST && known[0] !== undefined) return known[0].id;
  // An unset variable of a script is not the one thing that there is.
  const fitting = asked === "" ? [] : known.filter(({ id }) => id.startsWith(asked));
  const exact = fitting.find(({ id }) => id === asked);
  const [first] = fitting;
  if (first === undefined) throw unknown();
  if (exact !== undefined || fitting.length === 1) return (exact ?? first).id;
  const shown = fitting.slice(0, MAX_CANDIDATES).map(({ id, about }) => `  ${id}  ${printableLine(about, 80)}`);
  const more = fitting.length > MAX_CANDIDATES ? ["  and more"] : [];
  const message = [`${printableLine(asked, 80)} is the beginning of more than one id:`, ...shown, ...more].join("\n");
  throw new RequestError("AMBIGUOUS_ID", asked, message);
}

/** For people: that there is no run of this id, or none at all where the latest was asked for. `kind`: in the singular. */
export function noneText(kind: string, asked: string): string {
  if (asked === LATEST) return `there are no ${kind}s`;
  return `there is no ${kind} ${asked === "" ? '""' : printableLine(asked, 80)}`;
}

export type RequestErrorCode =
  | "UNKNOWN_WORKER"
  | "UNKNOWN_FLEET"
  | "UNKNOWN_ITEM"
  | "UNKNOWN_CHANGESET"
  /** No change of the changeset waits at or below these paths. */
  | "UNKNOWN_CHANGE"
  | "UNKNOWN_RUN"
  | "UNKNOWN_GRANT"
  /** A running worker may not be granted the directory. */
  | "GRANT_REFUSED"
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
  /** What is to be converted is not there, or the folder of the results does not fit. */
  | "CONVERSION"
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

  constructor(
    code: RequestErrorCode,
    asked: string,
    message: string,
    violations: readonly DescribedViolation[] = [],
    options: ErrorOptions = {},
  ) {
    super(message, options);
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
