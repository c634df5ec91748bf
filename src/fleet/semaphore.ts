import PQueue from "p-queue";

/**
 * Limits how many items run at once. More items than that are prepared: their verified cells wait at the gate, and the items
 * wait here.
 */
export class Semaphore {
  readonly #queue: PQueue;

  constructor(concurrency: number) {
    this.#queue = new PQueue({ concurrency });
  }

  /** Does not affect items that already run. */
  set concurrency(concurrency: number) {
    this.#queue.concurrency = concurrency;
  }

  /** While it is held, no place is given, also if one is free. */
  set isHeld(isHeld: boolean) {
    if (isHeld) this.#queue.pause();
    else this.#queue.start();
  }

  /** Waits for a place and returns the function that releases it. Rejects with the signal's reason if it is aborted first. */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const { promise: begun, resolve: begin, reject } = Promise.withResolvers<void>();
    const onAbort = (): void => {
      // Its place in the queue is released as soon as it comes up.
      end();
      reject(signal.reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    void this.#queue.add(async () => {
      begin();
      await over;
    });
    await begun;
    signal.removeEventListener("abort", onAbort);
    return end;
  }
}
