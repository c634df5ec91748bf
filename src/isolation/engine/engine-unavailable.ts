import type { Endpoint, EndpointSource } from "./endpoint.ts";

/** Why no Engine answered: `setting` is a wrong setting, before anything was tried. */
export type UnavailableReason = "setting" | "no-socket" | "permission" | "refused" | "timeout" | "other";

/** No Engine answered. The message says what was tried, why it failed, and what to do. */
export class EngineUnavailableError extends Error {
  override readonly name = "EngineUnavailableError";
  readonly reason: UnavailableReason;
  /** Who said where the Engine is; null for a wrong setting. */
  readonly source: EndpointSource | null;

  constructor(endpoint: Endpoint | null, cause: unknown) {
    const reason = endpoint === null ? "setting" : reasonOf(cause);
    super(describe(endpoint, reason, cause), { cause });
    this.reason = reason;
    this.source = endpoint?.source ?? null;
  }
}

function reasonOf(cause: unknown): UnavailableReason {
  const { code, name } = cause as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR") return "no-socket";
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
  const where = `${endpoint.url} (${endpoint.source === "default" ? "the default" : `from ${endpoint.source}`})`;
  return `No container Engine at ${where}: ${WHY[reason](detail)}`;
}

const WHY: Readonly<Record<UnavailableReason, (detail: string) => string>> = {
  setting: (detail) => detail,
  "no-socket": () =>
    "there is no such socket. Install Docker (on Debian: apt-get install docker.io) and start it, or say in DOCKER_HOST where the Engine is.",
  permission: () =>
    "permission denied. Add this user to the group docker (usermod -aG docker NAME, then log in again), or run as root.",
  refused: () => "nothing listens there. Start the Engine (systemctl start docker, or dockerd).",
  timeout: () => "it accepted the connection and did not answer in time. Look at the Engine's log, then restart it.",
  other: (detail) => `${detail}. Look at the Engine's log and at DOCKER_HOST.`,
};
