import { EngineUnavailableError, type UnavailableReason } from "../port/engine.ts";
import { describeEndpoint, type Endpoint } from "./endpoint.ts";

/** The error for an endpoint at which no Engine answered; null: the setting that names it is wrong. */
export function engineUnavailable(endpoint: Endpoint | null, cause: unknown): EngineUnavailableError {
  const reason = endpoint === null ? "setting" : reasonOf(cause);
  const source = endpoint?.source ?? null;
  return new EngineUnavailableError(describe(endpoint, reason, cause), { reason, source, cause });
}

function reasonOf(cause: unknown): UnavailableReason {
  const { code, name } = cause as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR") return "no_socket";
  if (code === "EACCES" || code === "EPERM") return "permission";
  if (code === "ECONNREFUSED") return "refused";
  if (code === "ABORT_ERR" || code === "ETIMEDOUT" || name === "TimeoutError" || name === "AbortError")
    return "timeout";
  return "other";
}

function describe(endpoint: Endpoint | null, reason: UnavailableReason, cause: unknown): string {
  const detail = cause instanceof Error ? cause.message : String(cause);
  if (endpoint === null)
    return `No container Engine: ${detail}. Correct that setting, or unset it to use the local Engine.`;
  return `No container Engine at ${describeEndpoint(endpoint)}: ${WHY[reason](detail)}`;
}

const WHY: Readonly<Record<UnavailableReason, (detail: string) => string>> = {
  setting: (detail) => detail,
  no_socket: () =>
    "there is no such socket. Install Docker (on Debian: apt-get install docker.io) and start it, or set DOCKER_HOST to the Engine's address.",
  permission: () =>
    "permission denied. Add this user to the group docker (usermod -aG docker NAME, then log in again), or run as root.",
  refused: () => "nothing listens there. Start the Engine (systemctl start docker, or dockerd).",
  timeout: () => "it accepted the connection and did not answer in time. Check the Engine's log, then restart it.",
  other: (detail) => `${detail}. Check the Engine's log and DOCKER_HOST.`,
};
