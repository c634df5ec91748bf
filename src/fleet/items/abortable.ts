/** The same values, but waiting ends when the signal is aborted: standard input may never send anything. */
export async function* abortable<Value>(
  values: AsyncIterable<Value> | Iterable<Value>,
  signal: AbortSignal,
): AsyncGenerator<Value> {
  if (!(Symbol.asyncIterator in values)) {
    yield* values;
    return;
  }
  const iterator = values[Symbol.asyncIterator]();
  let ended = false;
  try {
    for (;;) {
      const next = await nextOf(iterator, signal);
      ended = next.done === true;
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A pending `next` settles only with its next value, so `return` is not awaited.
    if (!ended) void Promise.resolve(iterator.return?.()).catch(() => {});
  }
}

async function nextOf<Value>(iterator: AsyncIterator<Value>, signal: AbortSignal): Promise<IteratorResult<Value>> {
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([iterator.next(), promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
