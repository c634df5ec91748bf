import type { Duplex } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import type Docker from "dockerode";
import { EngineTrouble } from "../driver.ts";
import { END_OF_REPORT, MAX_REPORT_BYTES } from "../gate/report.ts";
import { GO } from "../gate/script.ts";
import { Demultiplexer } from "./demux.ts";

/** The attached standard streams of a cell: first the gate's report, and after {@link Attachment.release} the worker's output. */
export interface Attachment {
  /** The whole report; rejects where the cell ends, or says too much, before its end. */
  readonly report: Promise<string>;
  /** Opens the gate. `null`: the input stays open until {@link Attachment.close}, or until this process is gone. */
  release(input: Uint8Array | null): void;
  /** More of its input, after it was released with an open one. */
  write(text: string): void;
  /** Settles when both streams are at their end; `broken` where their connection went away before that. */
  readonly ended: Promise<"complete" | "broken">;
  /** Not a byte is delivered from now on. */
  close(): void;
}

type OnOutput = (stream: "stdout" | "stderr", chunk: Buffer) => void;

/**
 * Attaches before the start, so that not a byte is missed. Input has a connection of its own: a worker that ends
 * without reading all of it breaks that one, which must not be taken for a loss of its output.
 */
export async function attach(container: Docker.Container, onOutput: OnOutput): Promise<Attachment> {
  const [input, output] = (await Promise.all([
    container.attach({ stream: true, hijack: true, stdin: true }),
    container.attach({ stream: true, hijack: true, stdout: true, stderr: true }),
  ])) as [Duplex, Duplex];
  // Nothing comes this way; it is read so that its end is seen. That it broke is for the worker's end to explain.
  input.resume().on("error", () => {});

  let released = false;
  let closed = false;
  const gate = new GateOutput();
  const streams = new Demultiplexer((name, chunk) => {
    if (closed) return;
    if (released) onOutput(name, chunk);
    else gate.add(name, chunk);
  });
  output.on("data", (chunk: Buffer) => {
    if (!streams.add(chunk)) output.destroy(new Error("the Engine sent something else than the cell's two streams"));
  });
  const ended = new Promise<"complete" | "broken">((resolve) => {
    output
      .once("end", () => resolve("complete"))
      .once("error", () => resolve("broken"))
      .once("close", () => resolve("broken"));
  });
  void ended.then(() => gate.end());

  return {
    report: gate.report,
    ended,
    release(bytes) {
      released = true;
      input.write(GO);
      if (bytes !== null) input.end(bytes);
    },
    write(text) {
      input.write(text);
    },
    close() {
      closed = true;
      input.destroy();
      output.destroy();
    },
  };
}

/** Collects what the gate prints. Its errors go with it, for the message of a failure. */
class GateOutput {
  readonly report: Promise<string>;
  readonly #settle: { resolve: (report: string) => void; reject: (error: Error) => void };
  // A chunk may end in the middle of a character, for mount points have any names.
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  #stdout = "";
  #stderr = "";

  constructor() {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    this.report = promise;
    this.#settle = { resolve, reject };
    // The report is awaited only after the start; a failure before that is told then.
    promise.catch(() => {});
  }

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    const text = this.#decoders[stream].write(chunk);
    if (stream === "stdout") this.#stdout += text;
    else this.#stderr += text;
    if (this.#stdout.length + this.#stderr.length > MAX_REPORT_BYTES) {
      this.#settle.reject(new EngineTrouble("the cell said too much before its worker was let in"));
    } else if (this.#stdout.endsWith(END_OF_REPORT)) this.#settle.resolve(this.#stdout);
  }

  end(): void {
    this.#settle.reject(
      new EngineTrouble(`the cell ended before its worker was let in: ${this.#stderr.trim() || "no reason given"}`),
    );
  }
}
