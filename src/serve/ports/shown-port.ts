import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { ClientRequest, Agent as HttpAgent, IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Duplex, pipeline } from "node:stream";
import { Agent, Connections, createServer, request as httpRequest, oneAtATime } from "../../platform/http.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { SECURITY_HEADERS } from "../http/answer.ts";
import {
  headersInside,
  headersOutside,
  meantHost,
  PORT_COOKIE,
  PORT_HEADER,
  type PortPlace,
  type PortRefusal,
  refusedRequest,
  socketAnswer,
} from "./port-headers.ts";

const LIMITS = {
  maxHeaderSize: 16 * 1024,
  insecureHTTPParser: false,
  requireHostHeader: true,
  headersTimeout: 5000,
  // An upload takes as long as its bytes come: SILENT_MS ends what is silent.
  requestTimeout: 0,
  keepAliveTimeout: 10_000,
  connectionsCheckingInterval: 1000,
};
const CONNECTIONS = { unknown: 32, known: 64 };
/** To the session, for requests; it has room for some more, for WebSockets. */
const MAX_INSIDE = 8;
/** Requests that wait for one of these. */
const MAX_WAITING = 64;
/** A connection to the session without a request is closed after so long: it has few. */
const UNUSED_MS = 2000;
/** A client that neither sends nor reads. */
const SILENT_MS = 600_000;
const LINK_MS = 120_000;
const MAX_LINKS = 16;
const LINK_PATH = "/.corral-open/";

/** Connects to the port in the session. Rejects with `ToolRefusal`, `ServiceFault` or `EngineTrouble`. */
export type ConnectPort = (signal: AbortSignal) => Promise<Duplex>;

/**
 * One port of one session at an origin of its own: what a server in a cell answers comes to no other page of the browser. Only who has a link of it,
 * or its header, gets anything.
 */
export class ShownPort {
  /** For programs: `http://127.0.0.1:PORT`. */
  readonly address: string;
  readonly header: { readonly name: string; readonly value: string };
  readonly #place: PortPlace;
  readonly #server: Server;
  readonly #sockets = new Set<Duplex>();
  readonly #connections: Connections;
  readonly #connect: ConnectPort;
  readonly #agent: HttpAgent;
  readonly #over = new AbortController();
  readonly #secret = randomBytes(32).toString("base64url");
  /** Until when each can be used, once. */
  readonly #links = new Map<string, number>();
  #unused: NodeJS.Timeout | undefined;

  static async open(port: number, connect: ConnectPort): Promise<ShownPort> {
    const server = createServer(LIMITS);
    server.maxHeadersCount = 100;
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject).listen({ host: "127.0.0.1", port: 0 }, resolve);
    });
    return new ShownPort(server, port, connect);
  }

  private constructor(server: Server, port: number, connect: ConnectPort) {
    const at = server.address();
    const taken = typeof at === "object" && at !== null ? at.port : 0;
    const label = randomBytes(10).toString("hex");
    this.#place = { host: `p${label}.localhost:${taken}`, address: `127.0.0.1:${taken}`, port };
    this.address = `http://${this.#place.address}`;
    this.header = { name: PORT_HEADER, value: this.#secret };
    this.#server = server;
    this.#connect = connect;
    this.#agent = new Agent({ keepAlive: true, maxSockets: MAX_INSIDE, maxFreeSockets: MAX_INSIDE / 2 });
    Object.assign(this.#agent, { createConnection: this.#dial });
    this.#connections = new Connections(server, CONNECTIONS);
    server.on(
      "request",
      oneAtATime(
        // Node throws for what it does not send.
        (request, response) => {
          attempt(
            () => this.#answer(request, response),
            (refusal) => refuse(response, refusal),
          );
        },
        () => {},
      ),
    );
    server.on("upgrade", (request, socket, head) => {
      attempt(
        () => this.#upgrade(request, socket as Socket, head),
        (refusal) => endBare(socket, refusal),
      );
    });
    server.on("connect", (_, socket) => socket.destroy());
    server.on("connection", (socket) => socket.setTimeout(SILENT_MS, () => socket.destroy()));
  }

  /** For a browser: it works once. */
  link(): string {
    const now = Date.now();
    for (const [token, until] of this.#links) if (until < now) this.#links.delete(token);
    const [oldest] = this.#links.keys();
    if (this.#links.size >= MAX_LINKS && oldest !== undefined) this.#links.delete(oldest);
    const token = randomBytes(32).toString("base64url");
    this.#links.set(token, now + LINK_MS);
    return `http://${this.#place.host}${LINK_PATH}${token}`;
  }

  close(): void {
    this.#over.abort(new Error("the port is shown no more"));
    clearTimeout(this.#unused);
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** For Node's client: a connection to the session is no socket, and has no use for what Node sets of one. */
  readonly #dial = (_: unknown, done: (error: Error | null, connection?: Duplex) => void): undefined => {
    const set = (): void => {};
    const sets = { setKeepAlive: set, setNoDelay: set, setTimeout: set, ref: set, unref: set };
    this.#connect(this.#over.signal).then(
      (connection) =>
        done(
          null,
          Object.assign(
            connection.on("error", () => {}),
            sets,
          ),
        ),
      (error: Error) => done(error),
    );
  };

  #isKnown(secret: string): boolean {
    const hash = (text: string): Buffer => createHash("sha256").update(text).digest();
    return timingSafeEqual(hash(secret), hash(this.#secret));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    response.on("error", () => {});
    request.on("error", () => {});
    const { url = "", method, socket } = request;
    const token = method === "GET" && url.startsWith(LINK_PATH) ? url.slice(LINK_PATH.length) : null;
    if (token !== null) return void this.#opened(request, response, token);
    const refusal = refusedRequest(request, this.#place, (secret) => this.#isKnown(secret), false);
    if (refusal !== null) return void refuse(response, refusal);
    if (!this.#connections.shownToken(socket) || Object.values(this.#agent.requests).flat().length > MAX_WAITING)
      return void refuse(response, BUSY);
    this.#pass(request, response, true);
  }

  /** Makes the browser that follows a link known, and has it begin at this origin: the cookie is not sent with what another page has begun. */
  #opened(request: IncomingMessage, response: ServerResponse, token: string): void {
    const until = this.#links.get(token) ?? 0;
    if (meantHost(request, this.#place) !== "page" || until < Date.now() || request.headers.origin !== undefined)
      return void refuse(response, { status: 403, why: "this link was used, or is too old; ask for a new one" });
    this.#links.delete(token);
    response.writeHead(200, {
      ...SECURITY_HEADERS,
      "content-type": "text/html; charset=utf-8",
      "set-cookie": `${PORT_COOKIE}=${this.#secret}; Path=/; HttpOnly; SameSite=Strict`,
    });
    response.end('<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Corral</title>\n');
  }

  #pass(request: IncomingMessage, response: ServerResponse, mayRepeat: boolean): void {
    const { method, url = "/", headersDistinct } = request;
    const hasBody =
      headersDistinct["content-length"] !== undefined || headersDistinct["transfer-encoding"] !== undefined;
    const headers = headersInside(headersDistinct, this.#place);
    const sent = httpRequest({ agent: this.#agent, host: "localhost", method, path: url, headers, ...ANSWERS });
    this.#rest();
    const leave = (): void => void sent.destroy();
    response.once("close", leave);
    sent.once("response", (answer) => {
      const passed = headersOutside(answer, this.#place, url);
      if (!passed.ok) {
        answer.destroy();
        return void refuse(response, passed.refusal);
      }
      const begin = (): void => {
        response.writeHead(answer.statusCode ?? 502, passed.headers);
        response.flushHeaders();
        pipeline(answer, response, () => this.#rest());
      };
      attempt(begin, (refusal) => {
        answer.destroy();
        refuse(response, refusal);
      });
    });
    sent.once("upgrade", (_, connection) => {
      connection.destroy();
      refuse(response, NO_ANSWER);
    });
    sent.on("error", (error) => {
      response.off("close", leave);
      if (response.headersSent || response.destroyed) return void response.destroy();
      // A server closes a connection that is not used while it is taken for the next request.
      if (mayRepeat && sent.reusedSocket && !hasBody) return void this.#pass(request, response, false);
      refuse(response, refusalOf(error));
    });
    if (hasBody) pipeline(request, sent, () => {});
    else sent.end();
  }

  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    socket.on("error", () => {});
    const refusal =
      request.headers.upgrade?.toLowerCase() === "websocket" && head.length === 0
        ? refusedRequest(request, this.#place, (secret) => this.#isKnown(secret), true)
        : NO_SOCKET;
    if (refusal !== null || !this.#connections.shownToken(socket)) return void endBare(socket, refusal ?? BUSY);
    const { url = "/", headersDistinct } = request;
    const headers = { ...headersInside(headersDistinct, this.#place), connection: "Upgrade", upgrade: "websocket" };
    const sent: ClientRequest = httpRequest({
      createConnection: this.#dial as never,
      host: "localhost",
      path: url,
      headers,
      ...ANSWERS,
    });
    this.#sockets.add(socket);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      sent.destroy();
    });
    sent.once("upgrade", (answer, connection, rest) => {
      const text = socketAnswer(answer);
      if (text === null || socket.destroyed) {
        connection.destroy();
        return void endBare(socket, NO_SOCKET);
      }
      socket.setTimeout(0);
      socket.write(text);
      if (rest.length > 0) connection.unshift(rest);
      pipeline(socket, connection, () => {});
      pipeline(connection, socket, () => {});
    });
    sent.once("response", (answer) => {
      answer.destroy();
      endBare(socket, { status: 502, why: `the server of the session answered with ${answer.statusCode}` });
    });
    sent.on("error", (error) => endBare(socket, refusalOf(error)));
    sent.end();
  }

  #rest(): void {
    clearTimeout(this.#unused);
    this.#unused = setTimeout(() => {
      for (const one of Object.values(this.#agent.freeSockets).flat()) one?.destroy();
    }, UNUSED_MS).unref();
  }
}

const ANSWERS = { maxHeaderSize: LIMITS.maxHeaderSize, insecureHTTPParser: false };
const NO_ANSWER: PortRefusal = { status: 502, why: "the server of the session gave no valid answer" };
const BUSY: PortRefusal = { status: 502, why: "too many requests of this port are under way" };
const NO_SOCKET: PortRefusal = { status: 400, why: "only WebSockets are passed on" };

/** Corral's own words for what keeps it from the session, and none of Node's for what its server sent. */
function refusalOf(error: Error): PortRefusal {
  return error instanceof ToolRefusal ? { status: 502, why: error.message } : NO_ANSWER;
}

function attempt(act: () => void, refused: (refusal: PortRefusal) => void): void {
  try {
    act();
  } catch {
    refused(NO_ANSWER);
  }
}

function refuse(response: ServerResponse, { status, why }: PortRefusal): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, { ...SECURITY_HEADERS, "content-type": "text/plain; charset=utf-8", connection: "close" });
  response.end(`corral: ${why}\n`);
}

function endBare(socket: Duplex, { status, why }: PortRefusal): void {
  if (socket.destroyed) return;
  const body = `corral: ${why}\n`;
  const length = Buffer.byteLength(body);
  socket.end(
    `HTTP/1.1 ${status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ${length}\r\nconnection: close\r\n\r\n${body}`,
  );
}
