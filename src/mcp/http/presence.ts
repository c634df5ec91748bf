import type { ServerResponse } from "node:http";
import type { Server } from "@modelcontextprotocol/server";

/** When a client that says nothing is taken to be gone. */
export interface PresenceTimes {
  /** Nothing was asked, and nothing is open. */
  readonly idleMs: number;
  /** What was open broke off, as it does when a process dies, and nothing was opened anew. */
  readonly goneMs: number;
}

/** A client's connection: the sessions end it, and know no more of it. */
export interface Disposing {
  [Symbol.asyncDispose](): Promise<void>;
}

/** What the sessions of an HTTP server are made with. */
export interface SessionsOptions<Connection extends Disposing> {
  /** `isShared`: for clients that nothing tells apart. */
  readonly connect: (isShared: boolean) => Connection;
  /** The protocol's side of a connection. `legacy`: revisions until 2025-11-25, `modern`: from 2026-07-28 on. */
  readonly serve: (connection: Connection, era: "legacy" | "modern") => Server;
  readonly times: PresenceTimes;
  readonly onTrouble: (error: Error) => void;
}

/** Whether the other side of a session is still there, told from the requests of it that are open. */
export class Presence implements Disposable {
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
    // Its client has left already, and no event will say so any more.
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
