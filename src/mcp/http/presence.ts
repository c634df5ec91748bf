import type { ServerResponse } from "node:http";
import type { Server } from "@modelcontextprotocol/server";

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
