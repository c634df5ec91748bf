import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { access, readFile } from "node:fs/promises";
import type { ClientRequest, Agent as HttpAgent, IncomingMessage } from "node:http";
import { Agent as TlsAgent } from "node:https";
import { homedir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import Docker from "dockerode";
import { z } from "zod";
import { loadSeccompProfile } from "../../declarations/policy/policy.ts";
import { nullFor } from "../../platform/errno.ts";
import { Agent } from "../../platform/http.ts";
import { sha256 } from "../../platform/sha256.ts";
import { within } from "../../platform/within.ts";
import type { Env } from "../../secrets/read-secret.ts";
import { currentOwner, KEY_BYTES, loadSealKey } from "../../state/owner.ts";
import { statePaths } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { closedGate, knownClosedGate } from "../gate/gate-streams.ts";
import {
  type EnginePort,
  EngineUnavailableError,
  type OpenEngineRequest,
  type UnavailableReason,
} from "../port/engine.ts";
import type { EngineGround } from "../port/images.ts";
import type { Maker } from "../port/labels.ts";
import { ANYTHING, asked } from "./answers/asked.ts";
import { type OpenedEngine, openedEngine } from "./capabilities.ts";
import { dockerDriver } from "./driver.ts";
import { ExaminedImages, savedImage } from "./examined-images.ts";
import { gateBinary, knownGate } from "./images/catalog.ts";

export type EndpointSource = "DOCKER_HOST" | `context ${string}` | "default";

/** The address of the Engine, and which setting it comes from. Nothing has been connected yet. */
export interface Endpoint {
  /** `unix:///…` or `tcp://host:port`. */
  readonly url: string;
  readonly source: EndpointSource;
  /** Absent: a plain connection. */
  readonly tls?: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer; readonly verify: boolean };
}

/** For people: the address, and the setting that it comes from. */
function describeEndpoint({ url, source }: Pick<Endpoint, "url" | "source">): string {
  return `${url} (${source === "default" ? "the default" : `from ${source}`})`;
}

const DEFAULT_SOCKET = "/var/run/docker.sock";

/**
 * Finds the Engine as the docker client does: DOCKER_HOST, then DOCKER_CONTEXT, then the client's current context,
 * then the default socket. Throws an `Error` whose message says which setting is wrong.
 */
export async function resolveEndpoint(env: Env): Promise<Endpoint> {
  if (env.DOCKER_HOST) return fromDockerHost(env.DOCKER_HOST, env);
  const configDir = env.DOCKER_CONFIG || join(env.HOME || homedir(), ".docker");
  const context = env.DOCKER_CONTEXT || currentContext(configDir);
  if (context && context !== "default") return fromContext(context, configDir);
  return { url: `unix://${DEFAULT_SOCKET}`, source: "default" };
}

async function fromDockerHost(raw: string, env: Env): Promise<Endpoint> {
  const endpoint: Endpoint = { url: parseUrl(raw), source: "DOCKER_HOST" };
  if (!endpoint.url.startsWith("tcp://") || !(env.DOCKER_TLS_VERIFY || env.DOCKER_TLS)) return endpoint;
  const certDir = env.DOCKER_CERT_PATH || env.DOCKER_CONFIG || join(env.HOME || homedir(), ".docker");
  return { ...endpoint, tls: { ...(await readTlsFiles(certDir)), verify: Boolean(env.DOCKER_TLS_VERIFY) } };
}

const ContextMeta = z.object({
  Endpoints: z.object({ docker: z.object({ Host: z.string(), SkipTLSVerify: z.boolean().optional() }) }),
});

async function fromContext(name: string, configDir: string): Promise<Endpoint> {
  const id = sha256(name);
  const metaFile = join(configDir, "contexts", "meta", id, "meta.json");
  const meta = ContextMeta.safeParse(readJson(metaFile));
  if (!meta.success)
    throw new Error(`the docker context ${JSON.stringify(name)} has no usable description in ${metaFile}`);
  const { Host: host, SkipTLSVerify: skipVerify } = meta.data.Endpoints.docker;
  const endpoint: Endpoint = { url: parseUrl(host), source: `context ${name}` };
  const tlsDir = join(configDir, "contexts", "tls", id, "docker");
  if (!endpoint.url.startsWith("tcp://") || !(await exists(tlsDir))) return endpoint;
  return { ...endpoint, tls: { ...(await readTlsFiles(tlsDir)), verify: !skipVerify } };
}

function currentContext(configDir: string): string | undefined {
  const config = z
    .object({ currentContext: z.string().optional() })
    .safeParse(readJson(join(configDir, "config.json")));
  return config.data?.currentContext;
}

function parseUrl(raw: string): string {
  const url = raw.includes("://") ? raw : `tcp://${raw}`;
  const scheme = url.slice(0, url.indexOf("://"));
  if (scheme === "unix") return url === "unix://" ? `unix://${DEFAULT_SOCKET}` : url;
  if (scheme === "ssh")
    throw new Error(
      `${raw}: an Engine on another host (ssh://) cannot run cells, because mounts are checked on this host`,
    );
  if (scheme !== "tcp" || !URL.parse(url)?.hostname)
    throw new Error(`${raw}: only unix:// and tcp:// endpoints are supported`);
  return url;
}

async function readTlsFiles(dir: string) {
  const [ca, cert, key] = await Promise.all(
    ["ca.pem", "cert.pem", "key.pem"].map((name) => readFile(join(dir, name)).catch(nullFor("ENOENT"))),
  );
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}

/** Without waiting, so that the Engine is asked before anything else is loaded. */
function textIfThere(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    return nullFor("ENOENT")(error);
  }
}

/** `undefined` if the file is missing, which is usual. A file that is not JSON is an error. */
function readJson(file: string): unknown {
  const text = textIfThere(file);
  if (!text) return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${file} is not JSON`, { cause });
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

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
    create({ _query: present({ name }), _body: config } as Docker.ContainerCreateOptions);
  return Object.assign(docker, { createContainer });
}

/**
 * The client library never settles a call whose answer is cut off in the middle, since it does not listen for an error of
 * the answer (docs/facts.md, fact: cut-answer-is-silent). So that error is also reported as one of the request, which it does listen for.
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
  return `${what} ${describeEndpoint(endpoint)}${reason === "unfit" ? " cannot be used" : ""}: ${WHY[reason](detail, endpoint)}`;
}

const WHY: Readonly<Record<UnavailableReason, (detail: string, endpoint: Endpoint) => string>> = {
  setting: (detail) => detail,
  no_socket: () =>
    "the socket does not exist. Install Docker (on Debian: apt-get install docker.io) and start it, or set DOCKER_HOST to the Engine's address. Without an Engine: --driver bwrap (docs/drivers.md).",
  permission: () =>
    "permission denied. Add this user to the group docker (usermod -aG docker NAME, then log in again), or run as root.",
  refused: () => "nothing listens on it. Start the Engine (systemctl start docker, or dockerd).",
  timeout: () => "it accepted the connection and did not answer in time. Check the Engine's log, then restart it.",
  unfit: (detail) => `${detail}.`,
  other: (detail, { source, tls }) => {
    const isContext = source.startsWith("context");
    const setting = isContext ? `the ${source}` : "DOCKER_HOST";
    if (tls === undefined) return `${detail}. Check the Engine's log and ${setting}.`;
    const certificates = isContext ? setting : "the folder DOCKER_CERT_PATH";
    return `the connection with TLS failed: ${detail}. Check ca.pem, cert.pem and key.pem of ${certificates}, and that the Engine's certificate is for the host in this address.`;
  },
};

/** What another driver needs of it. */
export interface DockerEngine extends Omit<EnginePort, "itemCells" | "driving" | "ofProject" | "unpacked"> {
  readonly ground: EngineGround;
  readonly maker: Maker;
  readonly seccomp: string;
  readonly examined: ExaminedImages;
}

/** The Docker Engine of this machine, asked while the state directory is made, as the port that the rest of Corral uses. */
export async function openDockerEngine(
  { stateDir, engineEnv, looksOnly = false }: OpenEngineRequest,
  stateDirMade: Promise<void> = Promise.resolve(),
): Promise<DockerEngine> {
  const parts = [
    connect(engineEnv),
    // What only looks seals nothing.
    looksOnly ? randomBytes(KEY_BYTES) : stateDirMade.then(() => loadSealKey(stateDir)),
    loadSeccompProfile(),
  ] as const;
  // If one fails, nothing is still being written when the caller learns of it.
  await Promise.allSettled([stateDirMade, ...parts]);
  await stateDirMade;
  const [{ docker, endpoint, socketPath, opened }, sealKey, seccomp] = await Promise.all(parts);
  const { live, names, startedContainers } = statePaths(stateDir);
  const maker: Maker = { owner: currentOwner(), sealKey };
  return {
    driver: dockerDriver({
      docker,
      maker,
      seccomp: { corral: seccomp },
      liveDir: live,
      startedDir: startedContainers,
      namesDir: names,
      // Only root may enter a network. The variable is for tests: both ways enforce the same.
      listensByContainer: process.getuid?.() !== 0 || engineEnv.CORRAL_LISTEN_BY_CONTAINER === "1",
    }),
    // They are loaded when they are needed: most commands build no image.
    images: {
      status: async (imagesDir) =>
        (await import("./images/debian-base.ts")).imageStatus({ docker, stateDir, imagesDir }),
      build: async (request) =>
        (await import("./images/build-images.ts")).buildEngineImages({ ...request, docker, stateDir }),
      make: async (request) => (await import("./images/made-images.ts")).makeImage(request, { docker, stateDir }),
      made: async () => (await import("./images/made-images.ts")).madeImages(docker),
      pull: async (reference, how) => (await import("./images/made-images.ts")).pullNamed(docker, reference, how),
      find: async (reference) => (await import("./images/made-images.ts")).findImage(docker, reference),
      remove: async (reference) => (await import("./images/made-images.ts")).removeImage(docker, reference),
    },
    gate: async () => await closedGate(await gateBinary({ docker, stateDir })),
    knownGate: async () => {
      const gate = await knownGate({ docker, stateDir });
      return gate === null ? null : await knownClosedGate(gate);
    },
    hostPlaces: { data: opened.dataDirs, sockets: socketPath === null ? [] : [socketPath] },
    description: describeEndpoint(endpoint),
    ground: {
      facts: { ...opened.facts, isLocal: socketPath !== null },
      savedImage: (id) => savedImage(docker, id),
    },
    maker,
    seccomp,
    examined: new ExaminedImages({ docker, maker, stateDir, seccomp }),
  };
}
