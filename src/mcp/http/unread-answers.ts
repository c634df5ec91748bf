import type { ServerResponse } from "node:http";

/** Of all clients together; each is held whole, and may be as large as an image that a tool reads. */
const MAX_UNREAD = 8;
const LOOK_MS = 100;

/** Gives up answers whose clients do not read them, the oldest first, where there are more than a few. */
export class UnreadAnswers implements Disposable {
  /** In the order of the requests. */
  readonly #open = new Set<ServerResponse>();
  readonly #timer = setInterval(() => this.#giveUp(), LOOK_MS).unref();

  watch(response: ServerResponse): void {
    this.#open.add(response);
    response.once("close", () => this.#open.delete(response));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #giveUp(): void {
    const unread = [...this.#open].filter(isUnread);
    for (const response of unread.slice(0, Math.max(0, unread.length - MAX_UNREAD))) response.destroy();
  }
}

/** What was written is not with the client's side of the connection yet. */
function isUnread({ writableNeedDrain, writableEnded, writableFinished }: ServerResponse): boolean {
  return writableNeedDrain || (writableEnded && !writableFinished);
}
