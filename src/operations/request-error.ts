import { nearest } from "../declarations/yaml/issue.ts";
import type { DescribedViolation } from "../run/model/result.ts";
import { printableLine } from "./wording/printable.ts";

export type RequestErrorCode =
  | "UNKNOWN_WORKER"
  | "UNKNOWN_FLEET"
  | "UNKNOWN_CHANGESET"
  | "UNKNOWN_CHANGE"
  | "UNKNOWN_GRANT"
  | "UNKNOWN_TRANSCRIPT"
  | "UNKNOWN_IMAGE"
  | "UNKNOWN_VALUE"
  | "ATTACHMENT"
  | "WORKER_REFUSED"
  | "FLEET_REFUSED"
  | "FLEET_NOT_ENDED"
  | "CHANGESET_BUSY"
  | "CHANGESET_BROKEN";

/** An operation was asked for something that does not exist or cannot be done. Nothing has changed. The message may hold host paths. */
export abstract class RequestError extends Error {
  abstract readonly code: RequestErrorCode;
}

/** The project has no worker of that name. */
export class UnknownWorkerError extends RequestError {
  override readonly name = "UnknownWorkerError";
  readonly code = "UNKNOWN_WORKER";
  readonly asked: string;
  readonly known: readonly string[];

  constructor(asked: string, known: readonly string[]) {
    super(`there is no worker ${printableLine(asked, 80)}${instead(asked, known, "the project has none")}`);
    this.asked = asked;
    this.known = known;
  }
}

/** The worker may not have what its file asks for. Every violation, in code and in words. */
export class WorkerRefusedError extends RequestError {
  override readonly name = "WorkerRefusedError";
  readonly code = "WORKER_REFUSED";
  readonly worker: string;
  readonly violations: readonly DescribedViolation[];

  constructor(worker: string, violations: readonly DescribedViolation[]) {
    super(violations.map(({ message }) => message).join("\n"));
    this.worker = worker;
    this.violations = violations;
  }
}

/** A file to attach does not exist, or is not a regular file. */
export class AttachmentError extends RequestError {
  override readonly name = "AttachmentError";
  readonly code = "ATTACHMENT";
  /** As it was given. */
  readonly path: string;

  constructor(path: string, reason: string) {
    super(`cannot attach ${printableLine(path, 500)}: ${reason}`);
    this.path = path;
  }
}

/** The project's journal has no fleet of that id. */
export class UnknownFleetError extends RequestError {
  override readonly name = "UnknownFleetError";
  readonly code = "UNKNOWN_FLEET";
  readonly fleet: string;

  constructor(fleet: string) {
    super(`there is no fleet ${printableLine(fleet, 80)} in this project`);
    this.fleet = fleet;
  }
}

/** The fleet still has items to run, so it cannot be removed. */
export class FleetNotEndedError extends RequestError {
  override readonly name = "FleetNotEndedError";
  readonly code = "FLEET_NOT_ENDED";
  readonly fleet: string;
  readonly state: string;

  constructor(fleet: string, state: string) {
    super(`fleet ${fleet} is ${state}; only a fleet that has ended can be removed`);
    this.fleet = fleet;
    this.state = state;
  }
}

/** No item was run: the worker may not, the items are in each other's way, or the fleet's state does not allow it. */
export class FleetRefusedError extends RequestError {
  override readonly name = "FleetRefusedError";
  readonly code = "FLEET_REFUSED";
  /** Empty if no sandbox rule is the reason. */
  readonly violations: readonly DescribedViolation[];

  constructor(reason: string, violations: readonly DescribedViolation[] = []) {
    super(reason);
    this.violations = violations;
  }
}

/** The state directory has no changeset of that id. */
export class UnknownChangesetError extends RequestError {
  override readonly name = "UnknownChangesetError";
  readonly code = "UNKNOWN_CHANGESET";
  readonly changeset: string;

  constructor(changeset: string, reason: string) {
    super(`${printableLine(changeset, 40)}: ${reason}`);
    this.changeset = changeset;
  }
}

/** Another process works on the changeset, or its record cannot be read. */
export class ChangesetUnavailableError extends RequestError {
  override readonly name = "ChangesetUnavailableError";
  readonly code: "CHANGESET_BUSY" | "CHANGESET_BROKEN";
  readonly changeset: string;

  constructor(changeset: string, code: "CHANGESET_BUSY" | "CHANGESET_BROKEN", reason: string) {
    super(reason);
    this.changeset = changeset;
    this.code = code;
  }
}

/** No change of the changeset waits at or below these paths. */
export class UnknownChangeError extends RequestError {
  override readonly name = "UnknownChangeError";
  readonly code = "UNKNOWN_CHANGE";
  readonly changeset: string;
  readonly paths: readonly string[];

  constructor(changeset: string, paths: readonly string[]) {
    super(`no change waits at ${paths.map((path) => printableLine(path)).join(", ")}`);
    this.changeset = changeset;
    this.paths = paths;
  }
}

/** No running worker has a grant of that id. */
export class UnknownGrantError extends RequestError {
  override readonly name = "UnknownGrantError";
  readonly code = "UNKNOWN_GRANT";
  readonly grant: string;

  constructor(grant: string) {
    super(`there is no grant ${printableLine(grant, 80)}`);
    this.grant = grant;
  }
}

/** The project has no transcript of that run. */
export class UnknownTranscriptError extends RequestError {
  override readonly name = "UnknownTranscriptError";
  readonly code = "UNKNOWN_TRANSCRIPT";
  readonly run: string;

  constructor(run: string) {
    super(`there is no transcript of a run ${printableLine(run, 80)}`);
    this.run = run;
  }
}

/** Corral builds no image of that name. */
export class UnknownImageError extends RequestError {
  override readonly name = "UnknownImageError";
  readonly code = "UNKNOWN_IMAGE";
  readonly image: string;

  constructor(image: string, known: readonly string[]) {
    super(`there is no image ${printableLine(image, 80)}${instead(image, known, "there are none")}`);
    this.image = image;
  }
}

/** A filter names a value that nothing can have: a status of items, a type of records. */
export class UnknownValueError extends RequestError {
  override readonly name = "UnknownValueError";
  readonly code = "UNKNOWN_VALUE";
  readonly value: string;
  readonly known: readonly string[];

  /** `what`: the kind of value, such as `status`. */
  constructor(what: string, value: string, known: readonly string[]) {
    super(`there is no ${what} ${printableLine(value, 80)}${instead(value, known, "there are none")}`);
    this.value = value;
    this.known = known;
  }
}

function instead(asked: string, known: readonly string[], none: string): string {
  return nearest(asked, known) ?? (known.length === 0 ? `; ${none}` : `; there are: ${known.join(", ")}`);
}
