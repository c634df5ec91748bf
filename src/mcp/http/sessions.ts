import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { NodeStreamableHTTPServerTransport } from "@modelcontextprotocol/node";
import { isInitializeRequest } from "@modelcontextprotocol/server";
import { type HttpRequest, refuse } from "./admission.ts";
import { type Disposing, Presence, type SessionsOptions } from "./presence.ts";

/** Clients at once; each may have a container. */
const MAX_SESSIONS = 16;

interface Session {
  readonly transport: NodeStreamableHTTPServerTransport;
  readonly presence: Presence;
  readonly end: () => Promise<void>;
}

/** Clients of the revisions until 2025-11-25, each with a session that its first request opens. */
export class Sessions<Connection extends Disposing> implements AsyncDisposable {
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
