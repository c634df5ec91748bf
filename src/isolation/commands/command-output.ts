import type { Socket } from "node:net";
import type { ExecRequest } from "../port/exec.ts";

/** How long what a command has left running may still write to its output, after the command's own end. */
const HELD_MS = 2000;

/**
 * Both output streams of one command. While the caller still processes what was read, neither is read: the command waits, and
 * memory does not grow.
 */
export class CommandOutput {
  readonly #streams: readonly Socket[];
  readonly #ended = Promise.withResolvers<void>();
  #onOutput: ExecRequest["onOutput"];
  #open: number;
  #taking = 0;
  #onResumed: () => void = () => {};

  constructor(stdout: Socket, stderr: Socket, onOutput: ExecRequest["onOutput"]) {
    this.#streams = [stdout, stderr];
    this.#open = this.#streams.length;
    this.#onOutput = onOutput;
    this.#read("stdout", stdout);
    this.#read("stderr", stderr);
  }

  /** Settles when no process holds either of them any more, and all was delivered. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /**
   * Settles when all of a command's output was delivered. Another process may hold it for longer than the command lives: then it
   * ends for the caller, and what is written later is dropped, so that this process can continue.
   */
  async drained(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      const wait = (): void => {
        clearTimeout(timer);
        timer = setTimeout(() => this.#taking === 0 && resolve(), HELD_MS);
      };
      this.#onResumed = wait;
      wait();
    });
    await Promise.race([this.ended, late]);
    clearTimeout(timer);
    this.#onResumed = () => {};
    this.#onOutput = () => {};
    for (const stream of this.#streams) stream.resume().unref();
  }

  close(): void {
    for (const stream of this.#streams) stream.destroy();
  }

  #read(name: "stdout" | "stderr", stream: Socket): void {
    stream.on("data", (chunk: Buffer) => this.#take(name, chunk));
    stream.on("error", () => {});
    stream.once("close", () => {
      this.#open -= 1;
      if (this.#open === 0) this.#ended.resolve();
    });
  }

  #take(name: "stdout" | "stderr", chunk: Buffer): void {
    const taken = this.#onOutput(name, chunk);
    if (taken === undefined) return;
    this.#taking += 1;
    for (const stream of this.#streams) stream.pause();
    void taken.then(() => {
      this.#taking -= 1;
      if (this.#taking > 0) return;
      for (const stream of this.#streams) stream.resume();
      this.#onResumed();
    });
  }
}
