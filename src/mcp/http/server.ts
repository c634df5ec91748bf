import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import { createMcpHandler, isInitializeRequest, isLegacyRequest, type Server } from "@modelcontextprotocol/server";
import { boundedText, OpenBytes, parseJson } from "../../json/parse-json.ts";
import { Connections, createServer, isUnambiguous, onlyHost } from "../../platform/http.ts";
import type { McpConnection } from "../connection/connection.ts";
import { MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, protocolServer } from "../protocol-server.ts";

/** A request that a server was sent: Node leaves these open for what a client is answered with. */
export type HttpRequest = IncomingMessage & { readonly method: string; readonly url: string };

/**
 * True for a request that was meant for this very server. A web page whose name was made to mean 127.0.0.1 (DNS
 * rebinding) sends its own name as `Host`, and any page sends its own `Origin`; programs send no `Origin`.
 */
export function isLocalRequest(request: IncomingMessage, port: number): boolean {
  const { headers, rawHeaders } = request;
  const names = [`127.0.0.1:${port}`, `localhost:${port}`];
  const { origin } = headers;
  const host = onlyHost(rawHeaders);
  if (!isUnambiguous(request) || host === null || !names.includes(host)) return false;
  return origin === undefined || names.some((name) => origin.toLowerCase() === `http://${name}`);
}

const MAX_HEADER_CHARS = 4096;

/** True if a request carries the token. The duration of the check reveals nothing about the token. */
function carriesToken({ headers }: Pick<IncomingMessage, "headers">, token: string): boolean {
  const { authorization = "" } = headers;
  if (authorization.length > MAX_HEADER_CHARS) return false;
  const given = /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  return given !== undefined && timingSafeEqual(digestOf(given), digestOf(token));
}

/** Of one length, whatever was given. */
function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Of all clients. */
const MAX_OPEN_BYTES = 4 * MAX_MESSAGE_BYTES;

export type Body =
  | { readonly ok: true; readonly json: unknown }
  | { readonly ok: false; readonly status: 400 | 413; readonly reason: string };

/** The body of a request, as JSON. `take`: false if there is no room for so many bytes. Nothing of one that says to be too long is read, and no more than that of any. */
async function readBody(request: IncomingMessage, take: (bytes: number) => boolean): Promise<Body> {
  if (Number(request.headers["content-length"] ?? 0) > MAX_MESSAGE_BYTES) return TOO_LONG;
  // A client that breaks off is no trouble of the server.
  const text = await boundedText(request, { maxBytes: MAX_MESSAGE_BYTES, take }).catch(() => undefined);
  if (text === undefined) return { ok: false, status: 400, reason: "the request ended in the middle" };
  if (text === null) return TOO_LONG;
  const parsed = parseJson(text, MAX_MESSAGE_VALUES);
  if (!parsed.ok)
    return { ok: false, status: 400, reason: `the body is not JSON that this server accepts: ${parsed.problem}` };
  return { ok: true, json: parsed.value };
}

const TOO_LONG: Body = {
  ok: false,
  status: 413,
  reason: `a body has at most ${MAX_MESSAGE_BYTES} bytes, and all open ones together ${MAX_OPEN_BYTES}`,
};

/** Answers a request that never reaches the protocol, in the protocol's form all the same. */
function refuse(
  response: ServerResponse,
  status: number,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  // What was not read of the request would be taken for the next one.
  response.writeHead(status, { "content-type": "application/json", connection: "close", ...headers });
  response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32_000, message }, id: null }));
}

/** How long a client may be silent before Corral treats it as gone. */
export interface PresenceTimes {
  /** Nothing was asked, and nothing is open. */
  readonly idleMs: number;
  /** The last open request broke off, as when the client's process dies, and no new one came. */
  readonly goneMs: number;
}

/** A client's connection. The sessions only end it. */
export interface Disposing {
  [Symbol.asyncDispose](): Promise<void>;
}

/** What the sessions of an HTTP server need. */
export interface SessionsOptions<Connection extends Disposing> {
  /** `isShared`: for clients that cannot be distinguished. */
  readonly connect: (isShared: boolean) => Connection;
  /** The protocol's side of a connection. `legacy`: revisions until 2025-11-25, `modern`: from 2026-07-28 on. */
  readonly serve: (connection: Connection, era: "legacy" | "modern") => Server;
  readonly times: PresenceTimes;
  readonly onTrouble: (error: Error) => void;
}

/** Decides from a session's open requests if its client is still connected. */
class Presence implements Disposable {
  readonly #times: PresenceTimes;
  readonly #onGone: () => void;
  #open = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(times: PresenceTimes, onGone: () => void) {
    this.#times = times;
    this.#onGone = onGone;
    this.#wait(times.idleMs);
  }

  /** A request that is answered by this response; an event stream is one that stays open. */
  seen(response: ServerResponse): void {
    // The client has already left, and no event will report it.
    if (response.closed) return;
    this.#open += 1;
    clearTimeout(this.#timer);
    response.once("close", () => {
      this.#open -= 1;
      if (this.#open > 0) return;
      const { idleMs, goneMs } = this.#times;
      this.#wait(response.writableFinished ? idleMs : goneMs);
    });
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#open = Number.POSITIVE_INFINITY;
  }

  #wait(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onGone, ms).unref();
  }
}

/** Clients at once; each may have a container. */
const MAX_SESSIONS = 16;

interface Session {
  readonly transport: NodeStreamableHTTPServerTransport;
  readonly presence: Presence;
  readonly end: () => Promise<void>;
}

/** Clients of the revisions until 2025-11-25, each with a session that its first request opens. */
class Sessions<Connection extends Disposing> implements AsyncDisposable {
  readonly #options: SessionsOptions<Connection>;
  readonly #sessions = new Map<string, Session>();
  /** Also of those that are being opened, and closed: they take a place as well. */
  readonly #ends = new Set<() => Promise<void>>();

  constructor(options: SessionsOptions<Connection>) {
    this.#options = options;
  }

  async handle(request: HttpRequest, response: ServerResponse, body: unknown): Promise<void> {
    const id = request.headers["mcp-session-id"];
    if (id === undefined) return await this.#begin(request, response, body);
    const session = typeof id === "string" ? this.#sessions.get(id) : undefined;
    // The client begins anew then.
    if (session === undefined) return refuse(response, 404, "there is no such session, or it is over");
    session.presence.seen(response);
    await session.transport.handleRequest(request, response, body);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#ends].map((end) => end()));
  }

  async #begin(request: HttpRequest, response: ServerResponse, body: unknown): Promise<void> {
    const first = Array.isArray(body) && body.length === 1 ? body[0] : body;
    if (!isInitializeRequest(first)) return refuse(response, 400, "the first request of a session is `initialize`");
    if (this.#ends.size >= MAX_SESSIONS) return refuse(response, 503, `there are ${MAX_SESSIONS} sessions already`);
    const session = await this.#open();
    session.presence.seen(response);
    await session.transport.handleRequest(request, response, body);
    if (session.transport.sessionId === undefined) await session.end();
  }

  async #open(): Promise<Session> {
    const { connect, serve, times, onTrouble } = this.#options;
    const connection = connect(false);
    const server = serve(connection, "legacy");
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => void this.#sessions.set(id, session),
      onsessionclosed: () => end(),
    });
    const presence = new Presence(times, () => void end());
    let ending: Promise<void> | null = null;
    const end = (): Promise<void> => {
      ending ??= close();
      return ending;
    };
    const close = async (): Promise<void> => {
      presence[Symbol.dispose]();
      if (transport.sessionId !== undefined) this.#sessions.delete(transport.sessionId);
      // What is under way is answered first, for a client that still listens.
      await connection[Symbol.asyncDispose]().catch(onTrouble);
      await server.close();
      this.#ends.delete(end);
    };
    this.#ends.add(end);
    const session = { transport, presence, end };
    server.onerror = onTrouble;
    server.onclose = () => void end();
    await server.connect(transport);
    return session;
  }
}

/**
 * Clients since the revision 2026-07-28. It knows no sessions: each request is complete in itself, and only the
 * token distinguishes clients. So all who have it share one sandbox and one container, until none has come for long.
 */
export class SharedSession<Connection extends Disposing> implements AsyncDisposable {
  readonly #options: SessionsOptions<Connection>;
  readonly #handle: ReturnType<typeof toNodeHandler>;
  readonly #close: () => Promise<void>;
  #connection: Connection | null = null;
  #presence: Presence | null = null;
  #ending: Promise<void> = Promise.resolve();
  #isOver = false;

  constructor(options: SessionsOptions<Connection>) {
    this.#options = options;
    const { onTrouble, serve } = options;
    const handler = createMcpHandler(() => serve(this.#connected(), "modern"), {
      legacy: "reject",
      onerror: onTrouble,
    });
    this.#handle = toNodeHandler(handler, { onerror: onTrouble });
    this.#close = handler.close;
  }

  async handle(request: HttpRequest, response: ServerResponse, body: unknown): Promise<void> {
    this.#connected();
    this.#presence?.seen(response);
    await this.#handle(request, response, body);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A request that still arrives would open what is never closed.
    this.#isOver = true;
    // What is under way is answered first, for a client that still listens.
    this.#end();
    await this.#ending;
    await this.#close();
  }

  #connected(): Connection {
    if (this.#isOver) throw new Error("the server is being stopped");
    const { connect, times } = this.#options;
    this.#connection ??= connect(true);
    // A request that breaks off is cancelled by that, and says nothing of its client.
    this.#presence ??= new Presence({ ...times, goneMs: times.idleMs }, () => this.#end());
    return this.#connection;
  }

  #end(): void {
    const connection = this.#connection;
    this.#presence?.[Symbol.dispose]();
    this.#presence = null;
    this.#connection = null;
    if (connection === null) return;
    const ended = connection[Symbol.asyncDispose]().catch((error: Error) => this.#options.onTrouble(error));
    this.#ending = Promise.all([this.#ending, ended]).then(() => {});
  }
}

/** For all clients together. Corral holds each answer whole, and it may be as large as an image that a tool reads. */
const MAX_UNREAD = 8;
/** A client that reads has read the largest answer in this time, over this machine's loopback. */
const PATIENCE_MS = 2000;
const LOOK_MS = 100;

/** Drops answers that their clients do not read, the oldest first, if there are more than a few. */
class UnreadAnswers implements Disposable {
  /** Since when each answer has been unread, in the order of the requests; null if it is not. */
  readonly #open = new Map<ServerResponse, number | null>();
  readonly #timer = setInterval(() => this.#look(performance.now()), LOOK_MS).unref();

  watch(response: ServerResponse): void {
    this.#open.set(response, null);
    response.once("close", () => this.#open.delete(response));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #look(now: number): void {
    for (const [response, since] of this.#open) this.#open.set(response, isUnread(response) ? (since ?? now) : null);
    const unread = [...this.#open].filter(([, since]) => since !== null && now - since > PATIENCE_MS);
    for (const [response] of unread.slice(0, Math.max(0, unread.length - MAX_UNREAD))) response.destroy();
  }
}

/** The client's side of the connection has not yet taken all that was written. */
function isUnread({ writableNeedDrain, writableEnded, writableFinished }: ServerResponse): boolean {
  return writableNeedDrain || (writableEnded && !writableFinished);
}

/** Nothing but this machine reaches it. */
const ADDRESS = "127.0.0.1";
const PATH = "/mcp";
/** A client on this machine says at once what it wants. */
const HEADERS = { headersTimeout: 5000, connectionsCheckingInterval: 1000 } as const;
const MAX_CONNECTIONS = { unknown: 128, known: 128 };
const METHODS = ["GET", "POST", "DELETE"];
const TIMES: PresenceTimes = { idleMs: 15 * 60_000, goneMs: 30_000 };

export interface HttpOptions extends Omit<SessionsOptions<McpConnection>, "times" | "serve"> {
  /** 0: any that is free. */
  readonly port: number;
  readonly token: string;
  readonly times?: PresenceTimes;
}

export interface McpHttpServer extends AsyncDisposable {
  readonly url: string;
}

/** Serves clients over streamable HTTP until it is disposed; their sandboxes and containers are gone then. */
export async function serveOnHttp({ port, token, times = TIMES, ...options }: HttpOptions): Promise<McpHttpServer> {
  const serving = { ...options, times, serve: protocolServer };
  const sessions = new Sessions(serving);
  const shared = new SharedSession(serving);
  let isOver = false;
  let served: Served | null = null;
  const server = createServer(HEADERS, (request, response) => {
    if (served === null) return refuse(response, 503, "the server is not there yet");
    const handled = handle(request as HttpRequest, response, served);
    handled.catch((error: Error) => {
      options.onTrouble(error);
      if (response.headersSent) response.destroy();
      else refuse(response, 500, "the server could not do it");
    });
  });
  const connections = new Connections(server, MAX_CONNECTIONS);
  const unread = new UnreadAnswers();
  const bodies = new OpenBytes(MAX_OPEN_BYTES);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(port, ADDRESS, () => resolve());
  });
  const bound = portOf(server.address());
  served = { port: bound, token, connections, unread, bodies, sessions, shared, isOver: () => isOver };
  return {
    url: `http://${ADDRESS}:${bound}${PATH}`,
    async [Symbol.asyncDispose]() {
      isOver = true;
      unread[Symbol.dispose]();
      const closed = new Promise((resolve) => server.close(resolve));
      await Promise.allSettled([sessions[Symbol.asyncDispose](), shared[Symbol.asyncDispose]()]);
      server.closeAllConnections();
      await closed;
    },
  };
}

interface Served {
  readonly port: number;
  readonly isOver: () => boolean;
  readonly token: string;
  readonly connections: Connections;
  readonly unread: UnreadAnswers;
  readonly bodies: OpenBytes;
  readonly sessions: Sessions<McpConnection>;
  readonly shared: SharedSession<McpConnection>;
}

/** What is asked of a request before anything of it is believed, the cheapest first. */
async function handle(request: HttpRequest, response: ServerResponse, served: Served): Promise<void> {
  const { port, token, connections, unread, bodies, sessions, shared, isOver } = served;
  const { method, url } = request;
  if (!isLocalRequest(request, port)) return refuse(response, 403, "the request was not meant for this server");
  if (!carriesToken(request, token))
    return refuse(response, 401, "the token is missing or wrong", { "www-authenticate": "Bearer" });
  if (!connections.shownToken(request.socket)) return refuse(response, 503, "there are too many connections already");
  unread.watch(response);
  if (url.split("?")[0] !== PATH) return refuse(response, 404, `there is nothing but ${PATH}`);
  if (!METHODS.includes(method)) return refuse(response, 405, "no such method", { allow: METHODS.join(", ") });
  if (method !== "POST") return await sessions.handle(request, response, undefined);
  let taken = 0;
  response.once("close", () => bodies.release(taken));
  const body = await readBody(request, (bytes) => {
    const isTaken = bodies.take(bytes);
    if (isTaken) taken += bytes;
    return isTaken;
  });
  if (!body.ok) return refuse(response, body.status, body.reason);
  const probe = await toWebRequest(request, body.json, { maxRequestBodySize: MAX_MESSAGE_BYTES });
  const isLegacy = await isLegacyRequest(probe, body.json);
  // On a connection that is kept, requests come until the very end.
  if (isOver()) return refuse(response, 503, "the server is being stopped");
  await (isLegacy ? sessions : shared).handle(request, response, body.json);
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("the server does not listen on a port");
  return address.port;
}
