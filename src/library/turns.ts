/**
 * Starts calls in the order in which they came: calls that change nothing run in parallel, every other call runs alone. The
 * loop of `ai` starts all calls of one answer at once, but a model that writes a file and then runs it means that order.
 */
export class Turns {
  /** The last call that runs alone. */
  #alone: Promise<unknown> = Promise.resolve();
  /** The calls that started after it. */
  readonly #beside = new Set<Promise<unknown>>();

  async take<T>(isAlone: boolean, act: () => Promise<T>): Promise<T> {
    const before = isAlone ? Promise.allSettled([this.#alone, ...this.#beside]) : this.#alone;
    const turn = before.then(act);
    const ended = turn.then(
      () => {},
      () => {},
    );
    if (isAlone) {
      this.#alone = ended;
      this.#beside.clear();
    } else {
      this.#beside.add(ended);
      void ended.then(() => this.#beside.delete(ended));
    }
    return await turn;
  }
}
