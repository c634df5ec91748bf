import type PQueue from "p-queue";
import { onAbort } from "../../platform/on-abort.ts";

/**
 * Runs work in its turn of a queue. If `signal` is aborted while the work waits, it leaves the queue at once with the reason
 * of the signal; work that has begun is awaited to its end.
 */
export async function inTurn<T>(queue: PQueue, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const waiting = new AbortController();
  using listening = onAbort(signal, () => waiting.abort(signal.reason));
  const begun = async (): Promise<T> => {
    listening[Symbol.dispose]();
    return await work();
  };
  return await queue.add(begun, { signal: waiting.signal });
}
