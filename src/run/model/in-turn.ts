import type PQueue from "p-queue";

/**
 * Work that takes its turn in a queue. Whoever gives up while it waits leaves the queue at once, with the reason of `signal`;
 * a turn that has begun lasts until its work has ended, whatever becomes of the signal.
 */
export async function inTurn<T>(queue: PQueue, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const waiting = new AbortController();
  const giveUp = (): void => waiting.abort(signal.reason);
  signal.addEventListener("abort", giveUp, { once: true });
  const begun = async (): Promise<T> => {
    signal.removeEventListener("abort", giveUp);
    return await work();
  };
  try {
    return await queue.add(begun, { signal: waiting.signal });
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}
