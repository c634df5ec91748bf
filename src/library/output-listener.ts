import type { OnOutput } from "../run/session/exec-command.ts";

/** Passes a command's output to the program's callback, which may fail. The code below this must not see that failure. */
export class OutputListener {
  readonly #onOutput: OnOutput;
  readonly #failure = new AbortController();

  constructor(onOutput: OnOutput) {
    this.#onOutput = onOutput;
  }

  /** Aborted with the callback's first error. The callback receives nothing after that. */
  get failed(): AbortSignal {
    return this.#failure.signal;
  }

  readonly hear: OnOutput = (stream, chunk) => {
    if (this.failed.aborted) return undefined;
    try {
      const taken = this.#onOutput(stream, chunk);
      return taken === undefined ? undefined : Promise.resolve(taken).catch(this.#fail);
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  };

  readonly #fail = (error: unknown): void => {
    // Without a reason, the signal would use its default reason.
    this.#failure.abort(error ?? new Error("`onOutput` failed without an error"));
  };
}
