import { chmodSync, lstatSync, rmSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import { createServer } from "../../platform/http.ts";
import { Connections } from "../../platform/http-connections.ts";
import type { Address } from "./admission.ts";
import { rawAnswer } from "./security-headers.ts";

/** Of all clients together; half of them may be open event streams. */
const MAX_CONNECTIONS = 256;
/** A client says at once what it wants. An upload may take longer. */
const TIMES = {
  headersTimeout: 5000,
  requestTimeout: 300_000,
  keepAliveTimeout: 10_000,
  connectionsCheckingInterval: 1000,
};
const LIMITS = { maxHeaderSize: 16 * 1024, insecureHTTPParser: false, requireHostHeader: true };
const MAX_REQUESTS_PER_SOCKET = 10_000;

/** The address cannot be listened on. The message says why. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

export interface Listener {
  /** With the port that was taken, if any was asked for. */
  readonly address: Address;
  /** A request with a valid token came by this connection: silent clients do not push it out. */
  known(request: IncomingMessage): void;
  /** Ends connections without a request at once, and the others after `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** @throws ListenError */
export async function listen(
  asked: Address,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Listener> {
  const server = createServer({ ...LIMITS, ...TIMES }, handle);
  server.maxRequestsPerSocket = MAX_REQUESTS_PER_SOCKET;
  server.maxHeadersCount = 100;
  const connections = new Connections(server, MAX_CONNECTIONS);
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    if (!socket.writable || error.code === "ECONNRESET") return void socket.destroy();
    const [status, message] = CLIENT_ERRORS[error.code ?? ""] ?? [
      "400 Bad Request",
      "this is not a valid HTTP request",
    ];
    socket.end(rawAnswer(status, "WRONG_REQUEST", message));
  });
  // Neither a proxy nor a WebSocket: what follows such a request must not be read as one.
  server.on("connect", (_, socket) => socket.destroy());
  server.on("upgrade", (_, socket) => socket.destroy());
  if (asked.kind === "unix") await removeDeadSocket(asked.path);
  await new Promise<void>((resolve, reject) => {
    const fail = (error: Error): void => reject(new ListenError(error.message, { cause: error }));
    server.once("error", fail);
    const ready = (): void => {
      server.off("error", fail);
      resolve();
    };
    // The socket has its mode from the first moment.
    const mask = asked.kind === "unix" ? process.umask(0o177) : null;
    if (asked.kind === "unix") server.listen(asked.path, ready);
    else server.listen(asked.port, asked.host, ready);
    if (mask !== null) process.umask(mask);
  });
  if (asked.kind === "unix") chmodSync(asked.path, 0o600);
  const bound = server.address();
  const address =
    asked.kind === "tcp" && typeof bound === "object" && bound !== null ? { ...asked, port: bound.port } : asked;
  return {
    address,
    known: ({ socket }) => connections.shownToken(socket),
    async close(graceMs) {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      const timer = setTimeout(() => server.closeAllConnections(), graceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

const CLIENT_ERRORS: Readonly<Record<string, readonly [string, string]>> = {
  HPE_HEADER_OVERFLOW: ["431 Request Header Fields Too Large", "the headers are too large"],
  ERR_HTTP_REQUEST_TIMEOUT: ["408 Request Timeout", "the request did not come in time"],
};

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
