/** Calls `act` when the signal is aborted, or at once if it already is; not any more after it is disposed of. */
export function onAbort(signal: AbortSignal, act: () => void): Disposable {
  signal.addEventListener("abort", act, { once: true });
  if (signal.aborted) act();
  return { [Symbol.dispose]: () => signal.removeEventListener("abort", act) };
}
