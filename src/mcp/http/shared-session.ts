import type { ServerResponse } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler } from "@modelcontextprotocol/server";
import type { HttpRequest } from "./admission.ts";
import { type Disposing, Presence, type SessionsOptions } from "./presence.ts";

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
