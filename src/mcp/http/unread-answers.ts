import type { ServerResponse } from "node:http";

/** For all clients together. Corral holds each answer whole, and it may be as large as an image that a tool reads. */
const MAX_UNREAD = 8;
/** A client that reads has read the largest answer in this time, over this machine's loopback. */
const PATIENCE_MS = 2000;
const LOOK_MS = 100;

/** Drops answers that their clients do not read, the oldest first, if there are more than a few. */
export class UnreadAnswers implements Disposable {
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
