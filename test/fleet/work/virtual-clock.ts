/** A clock that only tests move on. Whatever is due happens in order, and everything that follows from it before the next. */
export class VirtualClock {
  #now = 0;
  #timers: { readonly at: number; readonly due: () => void }[] = [];

  readonly now = (): number => this.#now;

  readonly pause = (ms: number, signal?: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      const timer = { at: this.#now + ms, due: resolve };
      this.#timers.push(timer);
      signal?.addEventListener("abort", () => {
        this.#timers = this.#timers.filter((one) => one !== timer);
        resolve();
      });
      if (signal?.aborted) resolve();
    });

  /** Moves on, and lets everything happen that is due meanwhile. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await settled();
    for (;;) {
      const [next] = this.#timers.filter(({ at }) => at <= until).toSorted((a, b) => a.at - b.at);
      if (next === undefined) break;
      this.#timers = this.#timers.filter((one) => one !== next);
      this.#now = Math.max(this.#now, next.at);
      next.due();
      await settled();
    }
    this.#now = until;
  }

  /** Moves on in small steps until this is so. Fails after a minute of this clock, and then 20 seconds for what is no timer: a file, a module. */
  async until(isSo: () => boolean, stepMs = 50): Promise<void> {
    for (let passed = 0; !isSo() && passed <= 60_000; passed += stepMs) await this.advance(stepMs);
    for (let waited = 0; !isSo(); waited += 5) {
      if (waited > 20_000) throw new Error("it did not happen within a minute");
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

/** Everything that does not wait for a timer has happened. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
