/** An ordered, bounded queue from many producers to one consumer. A producer waits while it is full. */
export class Channel<Value> {
  readonly #capacity: number;
  readonly #values: Value[] = [];
  #closed = false;
  #taken = Promise.withResolvers<void>();
  #put = Promise.withResolvers<void>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Drops the value after {@link close}. */
  async put(value: Value): Promise<void> {
    while (this.#values.length >= this.#capacity && !this.#closed) await this.#taken.promise;
    if (this.#closed) return;
    this.#values.push(value);
    this.#put.resolve();
  }

  /** The consumer still receives the values that are already queued. */
  close(): void {
    this.#closed = true;
    this.#put.resolve();
    this.#taken.resolve();
  }

  /** May be used once: a consumer that leaves closes it, and producers no longer wait. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Value> {
    try {
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
    } finally {
      this.close();
    }
  }
}
