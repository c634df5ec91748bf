/** Items of which the first was already read, so that what is wrong from the first on is known before anything is kept. */
export interface BegunItems<Item> extends AsyncDisposable {
  readonly items: AsyncIterable<Item>;
}

export async function begunItems<Item>(items: AsyncIterable<Item>): Promise<BegunItems<Item>> {
  const iterator = items[Symbol.asyncIterator]();
  const first = await iterator.next();
  return {
    items: (async function* () {
      for (let next = first; !next.done; next = await iterator.next()) yield next.value;
    })(),
    async [Symbol.asyncDispose]() {
      await iterator.return?.();
    },
  };
}
