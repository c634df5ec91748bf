import type { ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { toWebRequest } from "@modelcontextprotocol/node";
import { isLegacyRequest } from "@modelcontextprotocol/server";
import { OpenBytes } from "../../json/bounded-text.ts";
import { createServer } from "../../platform/http.ts";
import { Connections } from "../../platform/http-connections.ts";
import type { Connection } from "../connection/connection.ts";
import { MAX_MESSAGE_BYTES } from "../message-limits.ts";
import { protocolServer } from "../protocol-server.ts";
import { carriesToken, type HttpRequest, isLocalRequest, MAX_OPEN_BYTES, readBody, refuse } from "./admission.ts";
import type { PresenceTimes, SessionsOptions } from "./presence.ts";
import { Sessions } from "./sessions.ts";
import { SharedSession } from "./shared-session.ts";
import { UnreadAnswers } from "./unread-answers.ts";

/** Nothing but this machine reaches it. */
const ADDRESS = "127.0.0.1";
const PATH = "/mcp";
/** A client on this machine says at once what it wants. */
const HEADERS = { headersTimeout: 5000, connectionsCheckingInterval: 1000 } as const;
const MAX_CONNECTIONS = { unknown: 128, known: 128 };
const METHODS = ["GET", "POST", "DELETE"];
const TIMES: PresenceTimes = { idleMs: 15 * 60_000, goneMs: 30_000 };

export interface HttpOptions extends Omit<SessionsOptions<Connection>, "times" | "serve"> {
  /** 0: any that is free. */
  readonly port: number;
  readonly token: string;
  readonly times?: PresenceTimes;
}

export interface HttpServer extends AsyncDisposable {
  readonly url: string;
}

/** Serves clients over streamable HTTP until it is disposed; their sandboxes and containers are gone then. */
export async function serveOnHttp({ port, token, times = TIMES, ...options }: HttpOptions): Promise<HttpServer> {
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
  readonly sessions: Sessions<Connection>;
  readonly shared: SharedSession<Connection>;
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
