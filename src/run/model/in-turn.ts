import type PQueue from "p-queue";

/**
 * Runs work in its turn of a queue. If `signal` is aborted while the work waits, it leaves the queue at once with the reason
 * of the signal; work that has begun is awaited to its end.
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
