import { UnknownPolicyError } from "../../declarations/policy/policy.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import { ItemsError } from "../../fleet/items/faults.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { EngineUnavailableError } from "../../isolation/port/engine.ts";
import { ImageBuildError } from "../../isolation/port/images.ts";
import { RequestError, type RequestErrorCode } from "../../operations/request-error.ts";
import { StateDirError } from "../../state/state-dir.ts";
import { UsageError } from "./arguments.ts";
import { EXIT } from "./exit-status.ts";

export interface Failure {
  readonly text: string;
  readonly status: number;
}

/** What a person reads of an error, and the exit status that goes with it. */
export function failureOf(error: unknown, env: Readonly<Record<string, string | undefined>>): Failure {
  if (!(error instanceof Error)) return { text: `corral: ${String(error)}`, status: EXIT.engineTrouble };
  // Each line begins with its place in a file, which editors follow only at the start of the line.
  if (error instanceof DeclarationError) return { text: error.message, status: EXIT.wrongUsage };
  if ([UsageError, UnknownPolicyError, ItemsError].some((kind) => error instanceof kind)) {
    return { text: `corral: ${error.message}`, status: EXIT.wrongUsage };
  }
  if (error instanceof RequestError) {
    const hint = HINTS[error.code];
    const text = `corral: ${error.message.replaceAll("\n", "\ncorral: ")}${hint === undefined ? "" : `; ${hint}`}`;
    return { text, status: STATUSES[error.code] ?? EXIT.wrongUsage };
  }
  const ofEngine = [EngineUnavailableError, EngineTrouble, ImageBuildError, StateDirError];
  const known = ofEngine.some((kind) => error instanceof kind);
  if (known) return { text: `corral: ${error.message}`, status: EXIT.engineTrouble };
  const debug = Boolean(env.CORRAL_DEBUG);
  if (!debug && isRefusedBySystem(error)) return { text: `corral: ${error.message}`, status: EXIT.engineTrouble };
  const text = debug
    ? `corral: ${error.stack}`
    : `corral: unexpected error: ${error.message} (CORRAL_DEBUG=1 prints the stack)`;
  return { text, status: EXIT.engineTrouble };
}

const HINTS: Partial<Record<RequestErrorCode, string>> = {
  UNKNOWN_FLEET: "`corral fleet ls` lists them",
  FLEET_NOT_ENDED: "`corral fleet cancel` ends it",
  UNKNOWN_CHANGESET: "`corral changes ls --all-projects` lists them",
  UNKNOWN_CHANGE: "`corral changes show` lists them",
  UNKNOWN_GRANT: "`corral grants ls` lists them",
  UNKNOWN_TRANSCRIPT: "`corral transcripts ls` lists them",
};

/** All others are wrong usage. */
const STATUSES: Partial<Record<RequestErrorCode, number>> = {
  CHANGESET_BUSY: 1,
  CHANGESET_BROKEN: 1,
  WORKER_REFUSED: EXIT.refused,
  FLEET_REFUSED: EXIT.refused,
};

/** An error of the system about a path that the user named, or about a full disk, is not a bug. */
function isRefusedBySystem({ code }: NodeJS.ErrnoException): boolean {
  return code !== undefined && ["EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "ENOTDIR", "ELOOP"].includes(code);
}
