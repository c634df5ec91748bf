import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline } from "node:stream";
import PQueue from "p-queue";
import { ROUTES } from "../../operations/contract/routes.ts";
import { parseAsItComes } from "../../platform/http.ts";
import { inTraceOf, type Tracing } from "../../platform/tracing.ts";
import type { Log } from "../logging/log.ts";
import type { PageFile, PageFiles } from "../page/page-files.ts";
import { checkMeant, type Foreign, type OwnNames, ownerOf, type ShareOwner, Shares } from "./admission.ts";
import {
  bareAnswer,
  bareJson,
  endWith,
  type HidePaths,
  hiddenIn,
  SECURITY_HEADERS,
  type SlowClientLimits,
  send,
  sendFault,
} from "./answer.ts";
import { Carriage } from "./carriage.ts";
import { faultOf, type Refusals, ServiceFault } from "./fault.ts";
import { CONNECTIONS, type UpgradeHandler } from "./listener.ts";
import type { FoundRoute, Router, ServiceCaller } from "./router.ts";

/**
 * What the page may do: load its own files, and ask its own service. Texts of workers can neither become a script nor a style, nor
 * be sent elsewhere, and no text can become HTML (trusted types).
 */
const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

/** Sends a file of the page. */
function sendPage(
  request: IncomingMessage,
  response: ServerResponse,
  file: PageFile,
  patience: SlowClientLimits,
): void {
  const isGzip = /(?:^|[ ,])gzip(?:$|[ ,])/.test(String(request.headers["accept-encoding"] ?? ""));
  const bytes = isGzip ? file.gzipped : file.bytes;
  response.writeHead(200, {
    ...SECURITY_HEADERS,
    "content-security-policy": PAGE_POLICY,
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": file.cacheControl,
    "content-type": file.contentType,
    "content-length": String(bytes.length),
    vary: "accept-encoding",
    ...(isGzip ? { "content-encoding": "gzip" } : {}),
  });
  endWith(response, request.method === "HEAD" ? undefined : bytes, patience);
}

/** So that a token can still ask for something while it follows as much as it may. */
export const STREAM_LIMITS = { all: CONNECTIONS.all / 2, each: CONNECTIONS.each / 2 };
/** Of bodies in memory, until their requests are answered. The largest is an order of a fleet. */
const BODY_BYTES = { all: 192 * 1024 ** 2, each: 80 * 1024 ** 2 };
/** Of one token but an admin's: what it reads may take long to be found out, and others have their turn between. */
const MAX_READS_AT_ONCE = 4;

export interface Handling {
  readonly router: Router;
  readonly page: PageFiles;
  readonly names: OwnNames;
  /** Of a request that was refused because of its `Host` or `Origin`. */
  readonly onForeign: (foreign: Foreign) => void;
  readonly log: Log;
  readonly tracing: Tracing | null;
  /** `route`: the pattern; empty if there is none, or if the request did not come so far. */
  readonly answered: (request: { method: string; route: string; status: number; ms: number }) => void;
  /** @throws ServiceFault */
  readonly authenticate: (request: IncomingMessage) => Promise<ServiceCaller>;
  /** For messages of errors. */
  readonly hide: HidePaths;
  /** The request came from a client with a valid token. False: that has its share of connections. */
  readonly known: (request: IncomingMessage, caller: ServiceCaller) => boolean;
  readonly refusals: Refusals;
  /** Of requests, also of those whose connection another process has: to end it is not in the listener's hands. */
  readonly streams: Shares;
}

/** What the requests of all clients share. */
interface Room {
  readonly bodies: Shares;
  /** Of each token that has any. */
  readonly reads: Map<string, PQueue>;
}

/** Answers requests. What is asked of one before anything of it is believed comes first, the cheapest first. */
export function requestHandler(handling: Handling): (request: IncomingMessage, response: ServerResponse) => void {
  const { log, refusals, hide } = handling;
  const room: Room = { bodies: new Shares(BODY_BYTES), reads: new Map() };
  const patience: SlowClientLimits = { onUnread: () => refusals.count("unread") };
  return (request, response) => {
    const gone = new AbortController();
    const started = performance.now();
    const carriage = new Carriage(request, response, gone.signal);
    response.once("close", () => carriage.isAway || gone.abort());
    // A connection that breaks is no error of the service.
    response.on("error", () => {});
    request.on("error", () => {});
    const about = { method: request.method, route: "", caller: "" };
    const bodyTime = new BodyTime(request, response, () => refusals.count("malformed"));
    handle(request, response, { handling, gone, about, room, patience, bodyTime, carriage })
      .catch((error: unknown) => {
        const { isBug, body, status } = faultOf(error);
        // What the client broke off by going ends with an error that says nothing of Corral.
        if (isBug && !(gone.signal.aborted && isAbort(error)))
          log.error({ ...about, ...whereOf(error) }, "unexpected error");
        else log.debug({ ...about, code: body.code }, "refused");
        if (error instanceof ServiceFault && error.refusal !== null) refusals.count(error.refusal);
        if (carriage.isAway) {
          // For the log and the metrics.
          response.statusCode = status;
          carriage.answer(bareJson(`${status} Refused`, { error: hiddenIn(body, hide) }));
        } else sendFault(response, error, hide, patience);
      })
      .finally(() => {
        const ms = Math.round(performance.now() - started);
        const status = response.statusCode;
        handling.answered({ method: request.method ?? "", route: String(about.route), status, ms });
        log.debug({ ...about, status, ms }, "request");
      });
  };
}

interface Handled {
  readonly handling: Handling;
  readonly gone: AbortController;
  readonly about: Record<string, unknown>;
  readonly room: Room;
  readonly patience: SlowClientLimits;
  readonly bodyTime: BodyTime;
  readonly carriage: Carriage;
}

const MAX_LISTENERS = 32;
/** Of connections that are no requests any more. */
const UPGRADED = { all: CONNECTIONS.all / 2, each: CONNECTIONS.each / 2 };

/** Gives clients the connection that they ask for, after the same questions. */
export function upgradeHandler(handling: Handling): UpgradeHandler {
  const places = new Shares(UPGRADED);
  return (request, socket) => {
    const gone = new AbortController();
    // Two pipelines have their own.
    socket.setMaxListeners(MAX_LISTENERS).once("close", () => gone.abort());
    const take = async (): Promise<void> => {
      const { router, names, authenticate, known, refusals } = handling;
      checkMeant(request, names, handling.onForeign);
      const caller = await authenticate(request);
      const place = places.open(ownerOf(caller), () => socket.destroy());
      socket.once("close", () => place[Symbol.dispose]());
      if (!known(request, caller) || !place.take(1)) {
        refusals.count("share");
        throw tooMany(`${UPGRADED.each} connections are open with this token`);
      }
      const found = router.find(request.method ?? "", request.url ?? "");
      // Nothing else is begun by such a request.
      if (found.route.name !== "ports.connect") throw new ServiceFault(400, "WRONG_REQUEST", "this takes no upgrade");
      const take = (): void => {};
      const answer = await router.run(found, new URLSearchParams(), {
        caller,
        gone: gone.signal,
        request,
        take,
        carriage: null,
      });
      const connection = "connection" in answer ? answer.connection : undefined;
      if (connection === undefined) throw new Error("the route gave no connection");
      if (socket.destroyed) return void connection.destroy();
      handling.log.debug({ route: found.route.path, caller: caller.name }, "connection");
      socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: corral-port\r\n\r\n");
      pipeline(socket, connection, () => {});
      pipeline(connection, socket, () => {});
    };
    take().catch((error: unknown) => {
      const { status, body, isBug } = faultOf(error);
      if (isBug) handling.log.error({ ...whereOf(error) }, "unexpected error");
      socket.end(bareAnswer(`${status} Refused`, body.code, handling.hide(body.message)));
    });
  };
}

async function handle(
  request: IncomingMessage,
  response: ServerResponse,
  { handling, gone, about, room, patience, bodyTime, carriage }: Handled,
): Promise<void> {
  const { router, page, names, authenticate, known } = handling;
  checkMeant(request, names, handling.onForeign);
  const [path = "", query = "", more] = (request.url ?? "").split("?");
  if (more !== undefined) throw new ServiceFault(400, "WRONG_REQUEST", "the URL has two queries");
  const file = request.method === "GET" || request.method === "HEAD" ? page.get(path) : undefined;
  if (file !== undefined) return sendPage(request, response, file, patience);
  const [healthMethod, healthPath] = ROUTES["host.health"];
  const isPublic = request.method === healthMethod && path === healthPath;
  const caller = isPublic ? NOBODY : await authenticate(request);
  about.caller = caller.name;
  if (!isPublic && !known(request, caller)) throw tooMany(`${CONNECTIONS.each} connections are open with this token`);
  const found = router.find(request.method ?? "", path);
  // The pattern, and not the path, which may have a key of an item.
  about.route = found.route.path;
  if (found.route.takesBytes !== undefined || found.route.takesForm === true) {
    bodyTime.asUpload();
    parseAsItComes(request);
  }
  const owner = ownerOf(caller);
  const end = (): void => {
    request.socket.destroy();
    // It may be another process that has the connection.
    gone.abort();
  };
  using stream = handling.streams.open(owner, end);
  if (found.route.isLasting && !stream.take(1))
    throw tooMany(`${STREAM_LIMITS.each} requests that wait or follow are open with this token`);
  using content = room.bodies.open(owner, end);
  const take = (bytes: number): void => {
    if (!content.take(bytes)) throw tooMany("the bodies that the service has in memory leave no room for this one");
  };
  const act = () =>
    router.run(found, new URLSearchParams(query), { caller, gone: gone.signal, request, take, carriage });
  const answer = await inTurn(room.reads, found, owner, () => inTraceOf(handling.tracing, request.headers, act));
  if (carriage.isAway) carriage.answer(bareJson("200 OK", "json" in answer ? answer.json : null));
  else await send(response, answer, patience, carriage);
}

/** Reads of one token wait for each other; what waits by itself, or changes something, does not. */
async function inTurn<T>(
  reads: Room["reads"],
  { route }: FoundRoute,
  owner: ShareOwner,
  act: () => Promise<T>,
): Promise<T> {
  if (owner.isAdmin || route.isLasting || route.role === null || route.method !== "GET") return await act();
  const line = reads.get(owner.key) ?? new PQueue({ concurrency: MAX_READS_AT_ONCE });
  reads.set(owner.key, line);
  try {
    return (await line.add(act)) as T;
  } finally {
    if (line.size === 0 && line.pending === 0) reads.delete(owner.key);
  }
}

function tooMany(message: string): ServiceFault {
  return new ServiceFault(503, "TOO_MANY", message, "share");
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}

const NOBODY: ServiceCaller = { name: "", roles: [], token: null };

/** Where a bug is, without its message, which may hold contents and paths. */
function whereOf(error: unknown): { readonly error: string; readonly at: readonly string[] } {
  const { name = "", stack = "" } = error instanceof Error ? error : {};
  const at = stack
    .split("\n")
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 5);
  return { error: name, at: at.map((line) => line.trim().replaceAll(/(?:file:\/\/)?\/\S*\//g, "")) };
}

export interface BodyTimes {
  /** Of a body that is one value, such as JSON: all of it. */
  readonly wholeMs: number;
  /** Of one that is as large as it is: between two of its bytes. */
  readonly idleMs: number;
}

/** A client says what it wants in five minutes. An upload takes as long as bytes come. */
export const BODY_TIMES: BodyTimes = { wholeMs: 300_000, idleMs: 60_000 };

const LOOKS = 20;
/** For a client to read why its request ended. */
const LINGER_MS = 1000;

/** Bounds how long the body of a request may take to come. Node's own limit is of the whole, whatever it brings. */
export class BodyTime {
  #isUpload = false;

  /** `ended`: it was, with an answer. */
  constructor(request: IncomingMessage, response: ServerResponse, ended: () => void, times = BODY_TIMES) {
    const { socket, headers } = request;
    if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0) return;
    const begun = performance.now();
    let [bytes, movedAt] = [socket.bytesRead, begun];
    const look = (): void => {
      const now = performance.now();
      // What came and was not taken yet: then the client waits, and not Corral.
      if (socket.bytesRead !== bytes || request.readableLength > 0) [bytes, movedAt] = [socket.bytesRead, now];
      if (request.complete || socket.destroyed) return void clearInterval(timer);
      if (this.#isUpload ? now - movedAt < times.idleMs : now - begun < times.wholeMs) return;
      clearInterval(timer);
      ended();
      if (response.headersSent || !socket.writable) return void socket.destroy();
      const why = this.#isUpload
        ? `no bytes came for ${Math.round(times.idleMs / 1000)} s`
        : "the request did not come in time";
      socket.end(bareAnswer("408 Request Timeout", "WRONG_REQUEST", why));
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    };
    const timer = setInterval(look, Math.min(times.wholeMs, times.idleMs) / LOOKS);
    timer.unref();
    request.once("close", () => clearInterval(timer));
  }

  /** Its body is bytes, of any number. */
  asUpload(): void {
    this.#isUpload = true;
  }
}
