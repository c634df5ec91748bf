import { chmodSync, lstatSync, rmSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, createServer as createAcceptor, type ListenOptions, type Server, type Socket } from "node:net";
import { Connections, createServer, oneAtATime, parseInPieces } from "../../platform/http.ts";
import { type Address, type HeldShare, ownerOf, Shares } from "./admission.ts";
import { bareAnswer } from "./answer.ts";
import type { Refusals } from "./fault.ts";
import type { ServiceCaller } from "./router.ts";

/** One connection has one open request. Half of those of a token may be streams. */
export const CONNECTIONS = { all: 256, each: 128 };
/** Those of admins are counted apart from those of other tokens. */
const LIMIT = { unknown: 256, known: 2 * CONNECTIONS.all };
/** A client says at once what it wants. How long the rest may take is for `request-handler.ts`. */
const TIMES = {
  headersTimeout: 5000,
  requestTimeout: 0,
  keepAliveTimeout: 10_000,
  connectionsCheckingInterval: 1000,
};
const LIMITS = {
  maxHeaderSize: 16 * 1024,
  insecureHTTPParser: false,
  requireHostHeader: true,
  /** If the kernel's queue is full, it drops who comes next, and a client tries again after a second. The kernel may have less. */
  backlog: 4096,
};
/** Node takes one new connection in a turn from each: with one alone, a flood of connections would keep all others waiting for seconds. */
const ACCEPTORS = 16;
const MAX_REQUESTS_PER_SOCKET = 10_000;
/** For a client to read why its bytes were no request. */
const LINGER_MS = 1000;

/** The address cannot be listened on. The message says why. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

export interface Listener {
  /** With the port that was taken, if any was asked for. */
  readonly address: Address;
  /** A request with a valid token came by this connection: silent clients do not push it out. False: the token has its share of connections. */
  known(request: IncomingMessage, caller: ServiceCaller): boolean;
  /** Ends the connections of tokens that are no more. */
  endAllBut(tokens: ReadonlySet<string>): void;
  /** Ends connections without a request at once, and the others after `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** Takes over a connection, which Node reads no more. */
export type UpgradeHandler = (request: IncomingMessage, socket: Socket) => void;

/** @throws ListenError */
export async function listen(
  asked: Address,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  refusals: Refusals,
  upgrade: UpgradeHandler | null = null,
): Promise<Listener> {
  const server = createServer(
    { ...LIMITS, ...TIMES },
    oneAtATime(handle, () => refusals.count("pipelined")),
  );
  parseInPieces(server);
  server.maxRequestsPerSocket = MAX_REQUESTS_PER_SOCKET;
  server.maxHeadersCount = 100;
  const connections = new Connections(server, LIMIT, () => refusals.count("connections"));
  const shares = new Shares(CONNECTIONS);
  const parts = new WeakMap<Socket, HeldShare>();
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    refusals.count("malformed");
    if (!socket.writable || error.code === "ECONNRESET") return void socket.destroy();
    const [status, message] = CLIENT_ERRORS[error.code ?? ""] ?? [
      "400 Bad Request",
      "this is not a valid HTTP request",
    ];
    socket.end(bareAnswer(status, "WRONG_REQUEST", message));
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
  // No proxy: what follows such a request must not be read as one.
  server.on("connect", (_, socket) => socket.destroy());
  const upgraded = new Set<Socket>();
  server.on("upgrade", (request, duplex, head) => {
    const socket = duplex as Socket;
    // Who wants a connection waits until it is there.
    if (upgrade === null || head.length > 0) return void socket.destroy();
    upgraded.add(socket);
    socket.once("close", () => upgraded.delete(socket)).on("error", () => {});
    upgrade(request, socket);
  });
  if (asked.kind === "unix") await removeDeadSocket(asked.path);
  else if (asked.port !== 0) await refuseTaken(asked);
  // The socket has its mode from the first moment.
  const mask = asked.kind === "unix" ? process.umask(0o177) : null;
  const first = bound(server, asked.kind === "unix" ? { path: asked.path } : { ...asked, reusePort: true });
  if (mask !== null) process.umask(mask);
  await first;
  if (asked.kind === "unix") chmodSync(asked.path, 0o600);
  const at = server.address();
  const address = asked.kind === "tcp" && typeof at === "object" && at !== null ? { ...asked, port: at.port } : asked;
  const acceptors: Server[] = [];
  for (let more = address.kind === "tcp" ? ACCEPTORS - 1 : 0; more > 0; more -= 1) {
    const acceptor = createAcceptor({ allowHalfOpen: true, noDelay: true }, (socket) =>
      server.emit("connection", socket),
    );
    await bound(acceptor, { ...address, reusePort: true });
    acceptors.push(acceptor);
  }
  return {
    address,
    known({ socket }, caller) {
      const owner = ownerOf(caller);
      const before = parts.get(socket);
      if (before?.owner.key === owner.key && before.owner.isAdmin === owner.isAdmin && before.amount > 0) return true;
      before?.[Symbol.dispose]();
      const part = shares.open(owner, () => socket.destroy());
      parts.set(socket, part);
      if (before === undefined) socket.once("close", () => parts.get(socket)?.[Symbol.dispose]());
      if (part.take(1) && connections.shownToken(socket)) return true;
      part[Symbol.dispose]();
      return false;
    },
    endAllBut: (tokens) => shares.endAllBut(tokens),
    async close(graceMs) {
      const closed = [server, ...acceptors].map((one) => new Promise<void>((resolve) => one.close(() => resolve())));
      server.closeIdleConnections();
      for (const socket of upgraded) socket.destroy();
      const timer = setTimeout(() => server.closeAllConnections(), graceMs);
      await Promise.all(closed);
      clearTimeout(timer);
    },
  };
}

/** @throws ListenError */
function bound(server: Server, at: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => reject(new ListenError(error.message, { cause: error }));
    server.once("error", fail).listen({ ...at, backlog: LIMITS.backlog }, () => {
      server.off("error", fail);
      resolve();
    });
  });
}

const CLIENT_ERRORS: Readonly<Record<string, readonly [string, string]>> = {
  HPE_HEADER_OVERFLOW: ["431 Request Header Fields Too Large", "the headers are too large"],
  ERR_HTTP_REQUEST_TIMEOUT: ["408 Request Timeout", "the request did not come in time"],
};

/** A program of the same user that shares its port could be there: the kernel would give each a part of the connections. @throws ListenError */
async function refuseTaken(at: ListenOptions): Promise<void> {
  const probe = createAcceptor();
  await bound(probe, at);
  await new Promise((resolve) => probe.close(resolve));
}

/** What a service that was killed left. A living one, or anything that is no socket, stays. @throws ListenError */
async function removeDeadSocket(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) throw new ListenError(`${path} exists and is not a socket; remove it or choose another path`);
  const isAlive = await new Promise<boolean>((resolve) => {
    const socket = connect(path, () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
  if (isAlive) throw new ListenError(`another process listens on ${path}`);
  rmSync(path, { force: true });
}
