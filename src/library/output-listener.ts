import type { OnOutput } from "../run/session/exec-command.ts";

/** Hands a command's output to the program's own code, which may fail: what takes output further down must not. */
export class OutputListener {
  readonly #onOutput: OnOutput;
  readonly #failure = new AbortController();

  constructor(onOutput: OnOutput) {
    this.#onOutput = onOutput;
  }

  /** Aborted with the first error; it hears nothing after that. */
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
    // Without a reason the signal would have one of its own.
    this.#failure.abort(error ?? new Error("`onOutput` failed without an error"));
  };
}
