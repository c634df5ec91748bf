/** Resources that are disposed of together, the last first. In place of `AsyncDisposableStack`, which the oldest Node that Corral runs on does not have. */
export class Disposables implements AsyncDisposable {
  #held: (AsyncDisposable | Disposable)[] = [];

  use<Held extends AsyncDisposable | Disposable>(one: Held): Held {
    this.#held.push(one);
    return one;
  }

  /** Has this done with the rest. */
  defer(act: () => unknown): void {
    this.use({ [Symbol.asyncDispose]: async () => void (await act()) });
  }

  /** Hands everything over to a new collection. This one is empty afterwards: what succeeded is not undone. */
  move(): Disposables {
    const moved = new Disposables();
    moved.#held = this.#held.splice(0);
    return moved;
  }

  /** Disposes of all of them, even if one throws; then throws the first error. */
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
