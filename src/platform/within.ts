/** The longest delay of a timer in Node, about 24 days. A longer one would fire at once. Milliseconds. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** What the promise settles to, or null if it takes longer than `ms`. What it does then is no longer awaited. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Calls `act` when the signal is aborted, or at once if it already is; not any more after it is disposed of. */
export function onAbort(signal: AbortSignal, act: () => void): Disposable {
  signal.addEventListener("abort", act, { once: true });
  if (signal.aborted) act();
  return { [Symbol.dispose]: () => signal.removeEventListener("abort", act) };
}

/** Settles when the signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
