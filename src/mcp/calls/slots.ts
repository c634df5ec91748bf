import PQueue from "p-queue";
import { inTurn } from "../../run/model/in-turn.ts";

/** Requests of one kind that run at once for one client. Commands always run one at a time. */
const MAX_AT_ONCE = 16;
/** Requests that wait for their turn. Further requests are refused at once. */
const MAX_WAITING = 112;

/** Places for the requests of one kind of one client. A request that waits for a person takes no place. */
export class Slots {
  readonly #queue = new PQueue({ concurrency: MAX_AT_ONCE });
  /** How many people each holder of a place waits for. */
  readonly #waiting = new Map<object, number>();

  /** Null if too many already wait. Rejects with the signal's reason if it is aborted in the queue. */
  take<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> | null {
    if (this.#queue.size >= MAX_WAITING) return null;
    return inTurn(this.#queue, work, signal);
  }

  /** Frees the holder's place while it waits. Afterwards it takes a place at once, even if all are taken. */
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
