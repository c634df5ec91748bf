import type { ServerResponse } from "node:http";

/** Of all clients together; each is held whole, and may be as large as an image that a tool reads. */
const MAX_UNREAD = 8;
/** Whoever reads has read the largest by then: it comes over this machine's loopback. */
const PATIENCE_MS = 2000;
const LOOK_MS = 100;

/** Gives up answers whose clients do not read them, the oldest first, where there are more than a few. */
export class UnreadAnswers implements Disposable {
  /** Since when each has been unread, in the order of the requests; null: it is not. */
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

/** What was written is not with the client's side of the connection yet. */
function isUnread({ writableNeedDrain, writableEnded, writableFinished }: ServerResponse): boolean {
  return writableNeedDrain || (writableEnded && !writableFinished);
}
