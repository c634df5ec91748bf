import PQueue from "p-queue";
import { inTurn } from "../../run/model/in-turn.ts";

/** Requests of one kind that are worked on at once for one client; a command is one at a time in any case. */
const MAX_AT_ONCE = 16;
/** Requests that wait for their turn. What comes on top of them is refused at once. */
const MAX_WAITING = 112;

/** Places for the requests of one client that are of one kind. What waits for a person works on nothing, and takes none. */
export class Slots {
  readonly #queue = new PQueue({ concurrency: MAX_AT_ONCE });
  /** How many people each holder of a place waits for. */
  readonly #waiting = new Map<object, number>();

  /** Null where too many wait already. Rejects with the signal's reason where it is aborted in the queue. */
  take<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> | null {
    if (this.#queue.size >= MAX_WAITING) return null;
    return inTurn(this.#queue, work, signal);
  }

  /** Gives the holder's place to others while it waits. It takes it again at once, where all are taken on top of them. */
  async without<T>(holder: object, wait: () => Promise<T>): Promise<T> {
    this.#count(holder, 1);
    try {
      return await wait();
    } finally {
      this.#count(holder, -1);
    }
  }

  #count(holder: object, more: 1 | -1): void {
    const count = (this.#waiting.get(holder) ?? 0) + more;
    if (count === 0) this.#waiting.delete(holder);
    else this.#waiting.set(holder, count);
    this.#queue.concurrency = MAX_AT_ONCE + this.#waiting.size;
  }

  async idle(): Promise<void> {
    await this.#queue.onIdle();
  }
}
