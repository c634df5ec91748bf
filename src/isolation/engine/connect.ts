import type { ClientRequest, Agent as HttpAgent, IncomingMessage } from "node:http";
import { Agent as TlsAgent } from "node:https";
import { inspect } from "node:util";
import Docker from "dockerode";
import { Agent } from "../../platform/http.ts";
import { within } from "../../platform/within.ts";
import { EngineUnavailableError, type UnavailableReason } from "../port/engine.ts";
import { ANYTHING, asked } from "./answers/asked.ts";
import { type OpenedEngine, openedEngine } from "./capabilities.ts";
import { describeEndpoint, type Endpoint, type Env, resolveEndpoint } from "./endpoint.ts";

export interface EngineConnection {
  readonly docker: Docker;
  readonly endpoint: Endpoint;
  /** The Engine's Unix socket, which no mount may hold; null for an Engine over TCP. */
  readonly socketPath: string | null;
  readonly opened: OpenedEngine;
}

const ANSWER_TIMEOUT_MS = 5_000;
/** An Engine that answers by then needs no other question. */
const PATIENCE_MS = 250;

/**
 * Finds the Engine as the docker client does and asks whether it is there.
 *
 * `env` holds DOCKER_HOST, DOCKER_CONTEXT, DOCKER_CONFIG, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH and HOME.
 * @throws {EngineUnavailableError} when no Engine answers; its message says what to do.
 */
export async function connect(env: Env): Promise<EngineConnection> {
  const endpoint = await resolveEndpoint(env).catch((cause: unknown) => {
    throw engineUnavailable(null, cause);
  });
  try {
    const docker = withShortUrls(new Docker(clientOptions(endpoint)));
    const asking = openedEngine(docker);
    // Even a busy Engine answers the ping, so one that does not is not there.
    if ((await within(asking, PATIENCE_MS)) === null) await Promise.all([asked(() => ping(docker), ANYTHING), asking]);
    const opened = await asking;
    if (opened.unfit !== null) throw new UnfitEngine(opened.unfit);
    return { docker, endpoint, socketPath: socketPathOf(endpoint) ?? null, opened };
  } catch (cause) {
    throw engineUnavailable(endpoint, cause);
  }
}

/**
 * Every field is set, also to undefined: the client library fills a missing field from DOCKER_HOST and DOCKER_CERT_PATH
 * of the process's own environment, which this code must not read.
 */
function clientOptions(endpoint: Endpoint): Docker.DockerOptions {
  const { tls } = endpoint;
  const url = socketPathOf(endpoint) ? undefined : new URL(endpoint.url);
  const options = {
    socketPath: socketPathOf(endpoint),
    host: url?.hostname,
    port: url && (url.port || (tls ? "2376" : "2375")),
    pathPrefix: url?.pathname || "/",
    protocol: tls ? "https" : "http",
    ca: tls?.ca,
    cert: tls?.cert,
    key: tls?.key,
    agent: noticing(tls ? new TlsAgent({ ...KEPT_OPEN, rejectUnauthorized: tls.verify }) : new Agent(WITHOUT_TLS)),
    timeout: undefined,
  };
  return options as Docker.DockerOptions;
}

/** As Node's own agent: an idle connection is closed after five seconds. */
const KEPT_OPEN = { keepAlive: true, scheduling: "lifo", timeout: 5000 } as const;
/** Node derives a server name for TLS even for a plain connection, and compiles large regular expressions for it: 4 ms before the first call. */
const WITHOUT_TLS = { ...KEPT_OPEN, servername: "" };

/** The client library repeats in the URL what a container is made of: 30 kB, more than proxies in front of an Engine accept. */
function withShortUrls(docker: Docker): Docker {
  const create = docker.createContainer.bind(docker);
  const createContainer = ({ name, ...config }: Docker.ContainerCreateOptions): Promise<Docker.Container> =>
    create({ _query: name === undefined ? {} : { name }, _body: config } as Docker.ContainerCreateOptions);
  return Object.assign(docker, { createContainer });
}

/**
 * The client library never settles a call whose answer is cut off in the middle, since it does not listen for an error of
 * the answer (docs/architecture.md, fact: cut-answer-is-silent). So that error is also reported as one of the request, which it does listen for.
 */
function noticing<A extends HttpAgent>(agent: A): A {
  type Adding = { addRequest(request: ClientRequest, ...rest: unknown[]): void };
  const adding = agent as unknown as Adding;
  const add = adding.addRequest.bind(agent);
  adding.addRequest = (request, ...rest) => {
    request.once("response", (answer: IncomingMessage) => {
      answer.once("error", (error) => request.emit("error", error));
    });
    add(request, ...rest);
  };
  // The client library prints the options of each call for its log, also if there is none: of an agent, that is all its sockets.
  return Object.assign(agent, { [inspect.custom]: () => "Agent" });
}

/** The client's types do not have the ping's abort signal. */
async function ping(docker: Docker): Promise<void> {
  const pingable = docker as unknown as { ping(options: { abortSignal: AbortSignal }): Promise<unknown> };
  await pingable.ping({ abortSignal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
}

function socketPathOf(endpoint: Endpoint): string | undefined {
  return endpoint.url.startsWith("unix://") ? endpoint.url.slice("unix://".length) : undefined;
}

/** The error for an endpoint at which no Engine answered; null: the setting that names it is wrong. */
export function engineUnavailable(endpoint: Endpoint | null, cause: unknown): EngineUnavailableError {
  const reason = endpoint === null ? "setting" : reasonOf(cause);
  const source = endpoint?.source ?? null;
  return new EngineUnavailableError(describe(endpoint, reason, cause), { reason, source, cause });
}

class UnfitEngine extends Error {}

function reasonOf(cause: unknown): UnavailableReason {
  if (cause instanceof UnfitEngine) return "unfit";
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
  const what = reason === "unfit" ? "The container Engine at" : "No container Engine at";
  return `${what} ${describeEndpoint(endpoint)}${reason === "unfit" ? " cannot be used" : ""}: ${WHY[reason](detail)}`;
}

const WHY: Readonly<Record<UnavailableReason, (detail: string) => string>> = {
  setting: (detail) => detail,
  no_socket: () =>
    "the socket does not exist. Install Docker (on Debian: apt-get install docker.io) and start it, or set DOCKER_HOST to the Engine's address.",
  permission: () =>
    "permission denied. Add this user to the group docker (usermod -aG docker NAME, then log in again), or run as root.",
  refused: () => "nothing listens on it. Start the Engine (systemctl start docker, or dockerd).",
  timeout: () => "it accepted the connection and did not answer in time. Check the Engine's log, then restart it.",
  unfit: (detail) => `${detail}.`,
  other: (detail) => `${detail}. Check the Engine's log and DOCKER_HOST.`,
};
