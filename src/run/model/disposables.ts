/** What is disposed of together, the last first. Stands for `AsyncDisposableStack`, which Node 22 does not have. */
export class Disposables implements AsyncDisposable {
  #held: (AsyncDisposable | Disposable)[] = [];

  use<Held extends AsyncDisposable | Disposable>(one: Held): Held {
    this.#held.push(one);
    return one;
  }

  /** Lets go of all: whoever has taken them over disposes of them. */
  release(): void {
    this.#held = [];
  }

  /** All are disposed of, whatever one of them throws; the first that was thrown is thrown on. */
  async [Symbol.asyncDispose](): Promise<void> {
    const thrown: unknown[] = [];
    for (const one of this.#held.splice(0).reverse()) {
      try {
        if (Symbol.asyncDispose in one) await one[Symbol.asyncDispose]();
        else one[Symbol.dispose]();
      } catch (error) {
        thrown.push(error);
      }
    }
    if (thrown.length > 0) throw thrown[0];
  }
}
