import { Agent } from "node:https";
import Docker from "dockerode";
import { engineDataDirs } from "./capabilities.ts";
import { type Endpoint, type Env, resolveEndpoint } from "./endpoint.ts";
import { engineUnavailable } from "./engine-unavailable.ts";

export interface EngineConnection {
  readonly docker: Docker;
  readonly endpoint: Endpoint;
  /** The Engine's Unix socket, which no mount may hold; null for an Engine over TCP. */
  readonly socketPath: string | null;
  /** Where the Engine keeps its own data, which no mount may hold either. */
  readonly dataDirs: readonly string[];
}

const ANSWER_TIMEOUT_MS = 5_000;

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
    const docker = new Docker(clientOptions(endpoint));
    // At once, for each takes a while; the ping is answered also by an Engine that is too busy for more.
    const [, dataDirs] = await Promise.all([ping(docker), engineDataDirs(docker)]);
    return { docker, endpoint, socketPath: socketPathOf(endpoint) ?? null, dataDirs };
  } catch (cause) {
    throw engineUnavailable(endpoint, cause);
  }
}

/**
 * Every field is said, also where it is undefined: what is left out the client library fills in from DOCKER_HOST
 * and DOCKER_CERT_PATH in the process's own environment, which is not ours to read here.
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
    agent: tls && !tls.verify ? new Agent({ rejectUnauthorized: false, keepAlive: true }) : undefined,
    timeout: undefined,
  };
  return options as Docker.DockerOptions;
}

/** The client's types leave out that a ping can be given up. */
async function ping(docker: Docker): Promise<void> {
  const pingable = docker as unknown as { ping(options: { abortSignal: AbortSignal }): Promise<unknown> };
  await pingable.ping({ abortSignal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
}

function socketPathOf(endpoint: Endpoint): string | undefined {
  return endpoint.url.startsWith("unix://") ? endpoint.url.slice("unix://".length) : undefined;
}
