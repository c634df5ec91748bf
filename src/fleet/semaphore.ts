import PQueue from "p-queue";

/**
 * Who may run at once. More items than that are started ahead: their cells stand verified at the gate, with nothing run
 * in them, and wait here for their turn.
 */
export class Semaphore {
  readonly #queue: PQueue;

  constructor(concurrency: number) {
    this.#queue = new PQueue({ concurrency });
  }

  /** Who has a turn keeps it. */
  set concurrency(concurrency: number) {
    this.#queue.concurrency = concurrency;
  }

  /** Waits for a turn, which ends when the answer is called. Rejects with the signal's reason where it is aborted first. */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const { promise: begun, resolve: begin, reject } = Promise.withResolvers<void>();
    const onAbort = (): void => {
      // Its place in the queue passes at once when it comes up.
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
