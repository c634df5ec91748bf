import { UnknownPolicyError } from "../../declarations/policy/policy.ts";
import { DeclarationError, type Problem } from "../../declarations/yaml/problem.ts";
import { ItemsError, TemplateError } from "../../fleet/items/item-fields.ts";
import { QueueError } from "../../fleet/model/queue.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { EngineUnavailableError } from "../../isolation/port/engine.ts";
import { ImageBuildError } from "../../isolation/port/images.ts";
import { RequestError, type RequestErrorCode } from "../../operations/request-error.ts";
import { type DescribedViolation, UnfinishedChanges } from "../../run/model/result.ts";
import { SandboxError } from "../../sandbox/errors.ts";
import { UploadRoomError } from "../../state/service/upload-folder.ts";
import { StateDirError } from "../../state/state-dir.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { Log } from "../logging/log.ts";

/** Why a client was refused or closed before its request had an effect. */
export type ClientRefusal =
  /** Too many connections that have shown no token: the oldest was closed. */
  | "connections"
  /** Too many requests in a row, without waiting for the answers. */
  | "pipelined"
  | "malformed"
  | "unauthorized"
  /** The token has its share of connections, streams, memory or disk. */
  | "share"
  /** The client did not read its answer. */
  | "unread"
  | "broken_off";

const LOG_EVERY_MS = 60_000;

/** Counts refused clients. The log has a line for the first of a kind, and then at most one a minute. */
export class Refusals {
  readonly #log: Log;
  readonly #counted: (reason: ClientRefusal) => void;
  readonly #since = new Map<ClientRefusal, { loggedAt: number; count: number }>();

  constructor(log: Log, counted: (reason: ClientRefusal) => void) {
    this.#log = log;
    this.#counted = counted;
  }

  count(reason: ClientRefusal): void {
    this.#counted(reason);
    const now = performance.now();
    const seen = this.#since.get(reason) ?? { loggedAt: Number.NEGATIVE_INFINITY, count: 0 };
    seen.count += 1;
    this.#since.set(reason, seen);
    if (now - seen.loggedAt < LOG_EVERY_MS) return;
    this.#log.warn({ reason, count: seen.count }, "clients were refused");
    seen.loggedAt = now;
    seen.count = 0;
  }
}

export type Status = 400 | 401 | 403 | 404 | 405 | 409 | 413 | 415 | 422 | 500 | 503;

/** The body of every error: `{"error": …}`. The codes are those of `--json`, and the service's own. */
export interface FaultBody {
  readonly code: string;
  readonly message: string;
  readonly problems?: readonly Problem[];
  readonly violations?: readonly DescribedViolation[];
}

/** The service's own reason not to do what was asked. */
export class ServiceFault extends Error {
  override readonly name = "ServiceFault";
  readonly status: Status;
  readonly code: ServiceCode;
  /** What the operator sees of it; null: nothing beyond the request. */
  readonly refusal: ClientRefusal | null;

  constructor(status: Status, code: ServiceCode, message: string, refusal: ClientRefusal | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.refusal = refusal;
  }
}

export type ServiceCode =
  /** No token, or one that is unknown. */
  | "UNAUTHORIZED"
  /** The token does not have the role. */
  | "FORBIDDEN"
  /** The Host or the Origin of the request is not this service. */
  | "FOREIGN_REQUEST"
  | "NOT_FOUND"
  | "METHOD_NOT_ALLOWED"
  | "WRONG_CONTENT_TYPE"
  | "TOO_LARGE"
  | "WRONG_REQUEST"
  | "TOO_MANY"
  | "STOPPING"
  | "UNKNOWN_PROJECT"
  | "UNKNOWN_SESSION"
  /** An open session has the name. */
  | "SESSION_THERE"
  /** A session would end before it is paused. */
  | "BAD_TIMES"
  /** The service has removed it, or is another one since. */
  | "UNKNOWN_CI"
  | "UNKNOWN_CONVERSION"
  /** The service did not start it, or has removed its events. */
  | "NO_EVENTS"
  /** Its result is not there yet. */
  | "RUN_NOT_OVER"
  /** The command has ended. */
  | "COMMAND_OVER"
  /** What a session runs did not take a signal in time. */
  | "NOT_SIGNALLED";

/** What a client reads of an error. `isBug`: the log gets it, and the client nothing of it. */
export function faultOf(error: unknown): {
  readonly status: Status;
  readonly body: FaultBody;
  readonly isBug: boolean;
} {
  const fault = (status: Status, code: string, message: string, further: Partial<FaultBody> = {}) => ({
    status,
    body: { code, message, ...further },
    isBug: false,
  });
  if (error instanceof ServiceFault) return fault(error.status, error.code, error.message);
  // Of a session that is used without a tool, whose refusal is an answer.
  if (error instanceof ToolRefusal || error instanceof SandboxError)
    return fault(MISSING.has(error.code) ? 404 : 422, error.code, error.message);
  if (error instanceof RequestError) {
    const { code, message, violations } = error;
    return fault(STATUSES[code] ?? 404, code, message, violations.length === 0 ? {} : { violations });
  }
  if (error instanceof DeclarationError)
    return fault(422, "WRONG_DECLARATION", error.message, { problems: error.problems });
  if (error instanceof TemplateError)
    return fault(400, "WRONG_ITEMS", error.problems.map(({ about, fault }) => `${about}: ${fault}`).join("\n"));
  const known = KNOWN.find(([kind]) => error instanceof kind);
  if (known !== undefined) return fault(known[1], known[2], (error as Error).message);
  return { ...fault(500, "INTERNAL", "unexpected error; the log of the service has it"), isBug: true };
}

/** What a session does not have. */
const MISSING: ReadonlySet<string> = new Set(["UNKNOWN_COMMAND", "UNKNOWN_SNAPSHOT", "NOT_FOUND"]);

type ErrorKind = abstract new (...args: never[]) => Error;

const KNOWN: readonly (readonly [ErrorKind, Status, string])[] = [
  [UnknownPolicyError, 400, "UNKNOWN_POLICY"],
  [ItemsError, 400, "WRONG_ITEMS"],
  [EngineUnavailableError, 503, "ENGINE_UNAVAILABLE"],
  [EngineTrouble, 503, "ENGINE_TROUBLE"],
  [UnfinishedChanges, 503, "CHANGES_UNFINISHED"],
  [ImageBuildError, 503, "IMAGE_NOT_BUILT"],
  [QueueError, 503, "QUEUE_UNAVAILABLE"],
  [StateDirError, 503, "STATE_DIRECTORY"],
  [UploadRoomError, 503, "TOO_MANY"],
];

/** All others are of something that does not exist. */
const STATUSES: Partial<Record<RequestErrorCode, Status>> = {
  AMBIGUOUS_ID: 400,
  ATTACHMENT: 400,
  CONVERSION: 400,
  ARGUMENTS: 400,
  UNKNOWN_VALUE: 400,
  WRONG_ANSWER: 400,
  GRANT_REFUSED: 422,
  ALREADY_DECIDED: 409,
  QUESTION_CHANGED: 409,
  CONTINUE: 409,
  IMAGE_IN_USE: 409,
  IMAGE_NOT_MADE: 422,
  WORKER_REFUSED: 422,
  FLEET_REFUSED: 422,
  NO_QUEUE: 422,
  FLEET_NOT_ENDED: 409,
  RUN_NOT_ENDED: 409,
  CHANGESET_BUSY: 409,
  CHANGESET_CHANGED: 409,
  CHANGESET_BROKEN: 500,
};
