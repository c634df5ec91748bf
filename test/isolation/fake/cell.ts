import { constants } from "node:os";
import type { Enforcement } from "../../../src/isolation/plan/plan.ts";
import type { Cell, CellExit, Listening } from "../../../src/isolation/port/cell.ts";
import type { StartRequest } from "../../../src/isolation/port/driver.ts";
import type { FakeContainer } from "./engine.ts";
import type { FakeEnd, FakeProgram, FakeStream } from "./program.ts";

/** A cell whose worker is a function: it waits behind the gate until it is released, and ends once. */
export class FakeCell implements Cell {
  readonly id: string;
  readonly enforcement: Enforcement;
  readonly exit: Promise<CellExit>;
  readonly #container: FakeContainer;
  readonly #request: StartRequest;
  readonly #program: FakeProgram;
  readonly #terminated = new AbortController();
  readonly #settle: (exit: CellExit) => void;
  #released = false;

  constructor(container: FakeContainer, request: StartRequest, program: FakeProgram, enforcement: Enforcement) {
    const { promise, resolve } = Promise.withResolvers<CellExit>();
    this.id = container.id;
    this.enforcement = enforcement;
    this.exit = promise;
    this.#settle = resolve;
    this.#container = container;
    this.#request = request;
    this.#program = program;
  }

  release(input: Uint8Array): void {
    if (this.#released) throw new Error("a cell is released once");
    this.#released = true;
    void this.#run(Buffer.from(input)).then((end) => this.end(end));
  }

  async listen(): Promise<Listening> {
    return { ok: false, reason: "the fake driver has no network" };
  }

  async unnamedBytes(): Promise<number> {
    return 0;
  }

  async kill(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    if (signal === "SIGTERM" && this.#released) this.#terminated.abort(new Error(signal));
    else this.end(128 + constants.signals[signal]);
  }

  /** The first end is the one that is told; nothing is printed after it. */
  end(end: FakeEnd): void {
    if (this.#container.state === "exited") return;
    this.#container.state = "exited";
    const usage = { cpuMs: null, memoryBytesPeak: null };
    this.#settle(typeof end === "number" ? { kind: "exited", code: end, outOfMemory: false, usage } : end);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#container.remove();
  }

  async #run(stdin: Buffer): Promise<FakeEnd> {
    const { plan } = this.#request;
    const stderr = this.#stream("stderr");
    // A process begins after its release has returned, and never in the middle of it.
    await Promise.resolve();
    if (this.#container.state === "exited") return 0;
    try {
      return await this.#program({
        argv: plan.command,
        env: plan.env,
        stdin,
        stdout: this.#stream("stdout"),
        stderr,
        signal: this.#terminated.signal,
      });
    } catch (error) {
      if (this.#terminated.signal.aborted) return 128 + constants.signals.SIGTERM;
      stderr.write(`${error}\n`);
      return 1;
    }
  }

  #stream(name: "stdout" | "stderr"): FakeStream {
    return {
      write: (data) => {
        if (this.#container.state !== "exited") this.#request.onOutput(name, Buffer.from(data));
      },
    };
  }
}
