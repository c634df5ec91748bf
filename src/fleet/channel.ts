/** What is handed from many to one, in order. Whoever hands on waits while too much lies there. */
export class Channel<Value> {
  readonly #capacity: number;
  readonly #values: Value[] = [];
  #closed = false;
  #taken = Promise.withResolvers<void>();
  #put = Promise.withResolvers<void>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** After {@link close}, what is put is dropped: nobody takes it any more. */
  async put(value: Value): Promise<void> {
    while (this.#values.length >= this.#capacity && !this.#closed) await this.#taken.promise;
    if (this.#closed) return;
    this.#values.push(value);
    this.#put.resolve();
  }

  /** What lies there can still be taken. */
  close(): void {
    this.#closed = true;
    this.#put.resolve();
    this.#taken.resolve();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Value> {
    for (;;) {
      const value = this.#values.shift();
      if (value !== undefined) {
        this.#taken.resolve();
        this.#taken = Promise.withResolvers();
        yield value;
      } else if (this.#closed) return;
      else {
        this.#put = Promise.withResolvers();
        await this.#put.promise;
      }
    }
  }
}
