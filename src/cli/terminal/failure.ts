import { tmpdir } from "node:os";
import { ApiError } from "../../client/client.ts";
import { UnknownPolicyError } from "../../declarations/policy/policy.ts";
import { DeclarationError, type Problem } from "../../declarations/yaml/problem.ts";
import { ItemsError } from "../../fleet/items/item-fields.ts";
import { QueueError } from "../../fleet/model/queue.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { DriverUnavailableError, EngineUnavailableError } from "../../isolation/port/engine.ts";
import { ImageBuildError } from "../../isolation/port/images.ts";
import { LATEST, RequestError, type RequestErrorCode } from "../../operations/request-error.ts";
import { DiskFull, fullPlace, fullText, isDiskFull } from "../../platform/errno.ts";
import { type DescribedViolation, UnfinishedChanges } from "../../run/model/result.ts";
import { StateDirError, stateDirFrom } from "../../state/state-dir.ts";
import { UsageError } from "./arguments.ts";
import { EXIT } from "./terminal.ts";

/** An error as `--json` prints it: `{"error": …}` on standard output. docs/troubleshooting.md has the codes. */
export interface JsonError {
  readonly code: string;
  readonly message: string;
  /** Every mistake in the files of a project, each at its place. */
  readonly problems?: readonly Problem[];
  /** Every violation of a refusal. */
  readonly violations?: readonly DescribedViolation[];
}

export interface Failure {
  /** What a person reads of it. */
  readonly text: string;
  readonly status: number;
  readonly error: JsonError;
}

/** What a person and a program read of an error, and the exit status that goes with it. */
export function failureOf(error: unknown, env: Readonly<Record<string, string | undefined>>): Failure {
  if (!(error instanceof Error)) return failed("INTERNAL", `corral: ${String(error)}`, EXIT.engineTrouble);
  // Each line begins with its place in a file, which editors follow only at the start of the line.
  if (error instanceof DeclarationError)
    return failed("WRONG_DECLARATION", error.message, EXIT.wrongUsage, { problems: error.problems });
  if (error instanceof RequestError) {
    // If there is none at all, a list of them says no more.
    const hint = error.asked === LATEST ? undefined : HINTS[error.code];
    const text = `corral: ${error.message.replaceAll("\n", "\ncorral: ")}${hint === undefined ? "" : `; ${hint}`}`;
    const { violations } = error;
    const further = violations.length === 0 ? {} : { violations };
    return failed(error.code, text, STATUSES[error.code] ?? EXIT.wrongUsage, further);
  }
  if (error instanceof ApiError) return serviceFailure(error);
  const debug = Boolean(env.CORRAL_DEBUG);
  const known = KNOWN.find(([kind]) => error instanceof kind);
  if (known !== undefined && !isDiskFull(error)) return failed(known[1], `corral: ${error.message}`, known[2]);
  if (!debug && isDiskFull(error)) return failed("SYSTEM", `corral: ${fullDiskText(error, env)}`, EXIT.engineTrouble);
  if (!debug && isRefusedBySystem(error)) return failed("SYSTEM", `corral: ${error.message}`, EXIT.engineTrouble);
  const text = debug
    ? `corral: ${error.stack}`
    : `corral: unexpected error: ${error.message} (CORRAL_DEBUG=1 prints the stack)`;
  return failed("INTERNAL", text, EXIT.engineTrouble);
}

/** What the service refuses has the status that the machine itself would give it. Why it was not reached is in the cause, such as a wrong certificate. */
function serviceFailure({ status, code, message, violations, cause }: ApiError): Failure {
  const why = status === 0 && cause instanceof Error && cause.message !== "" ? ` (${cause.message})` : "";
  const hint = HINTS[code as RequestErrorCode];
  const text = `corral: ${message}${why}${hint === undefined ? "" : `; ${hint}`}`;
  const own = STATUSES[code as RequestErrorCode] ?? KNOWN.find(([, known]) => known === code)?.[2];
  const refused = status === 401 || status === 403 ? EXIT.refused : EXIT.wrongUsage;
  const otherwise = status === 0 || status >= 500 || status < 400 ? EXIT.engineTrouble : refused;
  return failed(
    code,
    text,
    own ?? otherwise,
    violations.length === 0 ? {} : { violations: violations as readonly DescribedViolation[] },
  );
}

function failed(code: string, text: string, status: number, further: Partial<JsonError> = {}): Failure {
  return { text, status, error: { code, message: text.replaceAll(/^corral: /gm, ""), ...further } };
}

type ErrorKind = abstract new (...args: never[]) => Error;

const KNOWN: readonly (readonly [ErrorKind, code: string, status: number])[] = [
  [UsageError, "WRONG_USAGE", EXIT.wrongUsage],
  [UnknownPolicyError, "UNKNOWN_POLICY", EXIT.wrongUsage],
  [ItemsError, "WRONG_ITEMS", EXIT.wrongUsage],
  [DriverUnavailableError, "DRIVER_UNAVAILABLE", EXIT.engineTrouble],
  [EngineUnavailableError, "ENGINE_UNAVAILABLE", EXIT.engineTrouble],
  [EngineTrouble, "ENGINE_TROUBLE", EXIT.engineTrouble],
  [UnfinishedChanges, "CHANGES_UNFINISHED", EXIT.engineTrouble],
  [ImageBuildError, "IMAGE_NOT_BUILT", EXIT.engineTrouble],
  [QueueError, "QUEUE_UNAVAILABLE", EXIT.engineTrouble],
  [StateDirError, "STATE_DIRECTORY", EXIT.engineTrouble],
];

const HINTS: Partial<Record<RequestErrorCode, string>> = {
  UNKNOWN_FLEET: "`corral fleet ls` lists them",
  FLEET_NOT_ENDED: "`corral fleet cancel` or `corral changes` ends it",
  UNKNOWN_RUN: "`corral runs ls --all-projects` lists them",
  RUN_NOT_ENDED: "`corral runs stop` ends it",
  UNKNOWN_CHANGESET: "`corral changes ls --all-projects` lists them",
  UNKNOWN_CHANGE: "`corral changes show` lists them",
  UNKNOWN_GRANT: "`corral grants ls` lists them",
  UNKNOWN_APPROVAL: "`corral approvals ls` lists those that wait",
  UNKNOWN_TRANSCRIPT: "`corral transcripts ls` lists them",
};

/** All others are wrong usage. */
const STATUSES: Partial<Record<RequestErrorCode, number>> = {
  CHANGESET_BUSY: 1,
  CHANGESET_BROKEN: 1,
  CHANGESET_CHANGED: 1,
  ALREADY_DECIDED: 1,
  QUESTION_CHANGED: 1,
  WORKER_REFUSED: EXIT.refused,
  GRANT_REFUSED: EXIT.refused,
  FLEET_REFUSED: EXIT.refused,
  NO_QUEUE: EXIT.wrongUsage,
};

/** An error of the system about a path that the user named is not a bug. */
function isRefusedBySystem({ code }: NodeJS.ErrnoException): boolean {
  return code !== undefined && ["EACCES", "EPERM", "EROFS", "ENOTDIR", "ELOOP"].includes(code);
}

/** The system names no path of a file that was already open. */
function fullDiskText(error: Error, env: Parameters<typeof stateDirFrom>[0]): string {
  const isEngines = error instanceof EngineTrouble;
  const place = isEngines || error instanceof DiskFull ? null : fullPlace([stateDirFrom(env), tmpdir(), "."]);
  const found =
    place === null ? error.message : `${fullText(place === "." ? process.cwd() : place)} (${error.message})`;
  const engines = isEngines ? "`docker system df` shows what the engine keeps, " : "";
  return `${found}. ${engines}\`corral du\` shows what Corral keeps, and \`corral gc\` removes what may go`;
}
