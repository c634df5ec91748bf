/**
 * Lets calls begin in the order in which they came: those that change nothing beside each other, every other one alone. The
 * loop of `ai` begins all calls of one answer at once, and a model that writes a file and then runs it means that order.
 */
export class Turns {
  /** The last that was alone. */
  #alone: Promise<unknown> = Promise.resolve();
  /** Those that began after it. */
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
