import type { Duplex } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import type Docker from "dockerode";
import { END_OF_REPORT, MAX_REPORT_BYTES } from "../gate/report.ts";
import { GO } from "../gate/script.ts";
import { EngineTrouble } from "../port/driver.ts";
import { Demultiplexer } from "./demux.ts";

/** The attached standard streams of a cell: first the gate's report, and after {@link Attachment.release} the worker's output. */
export interface Attachment {
  /** The whole report; rejects where the cell ends, or says too much, before its end. */
  readonly report: Promise<string>;
  /** Opens the gate. A lasting input stays open until {@link Attachment.close}, or until this process is gone. */
  release(input: Uint8Array): void;
  /** More of a lasting input. */
  write(text: string): void;
  /** Settles when both streams are at their end; `broken` where their connection went away before that. */
  readonly ended: Promise<"complete" | "broken">;
  /** Not a byte is delivered from now on. */
  close(): void;
}

type OnOutput = (stream: "stdout" | "stderr", chunk: Buffer) => void;

/**
 * Attaches before the start, so that not a byte is missed. A worker that ends without reading all of its input breaks
 * the connection that this came by, which must not be taken for a loss of its output. So input has one of its own:
 * from the beginning where it is `lasting`, and where it all comes at once, only for more than the Engine takes off the
 * connection in one go, whoever reads it.
 */
export async function attach(
  container: Docker.Container,
  onOutput: OnOutput,
  { input: kind }: { readonly input: "at-once" | "lasting" },
): Promise<Attachment> {
  const isShared = kind === "at-once";
  const [own, output] = (await Promise.all([
    isShared ? null : container.attach(INPUT_ONLY),
    container.attach({ stream: true, hijack: true, stdin: isShared, stdout: true, stderr: true }),
  ])) as [Duplex | null, Duplex];
  const input = own === null ? new InputAtOnce(container, output) : new LastingInput(own);

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
      input.release(bytes);
    },
    write(text) {
      input.write(text);
    },
    close() {
      closed = true;
      input.close();
      output.destroy();
    },
  };
}

const INPUT_ONLY = { stream: true, hijack: true, stdin: true };

/** What comes in one piece, with the line that opens the gate: the Engine reads up to 32 KB at a time. */
const MAX_SHARED_BYTES = 4000;

/** All of the input, and its end, in one write. */
class InputAtOnce {
  readonly #container: Docker.Container;
  readonly #shared: Duplex;
  #own: Duplex | null = null;
  #closed = false;

  constructor(container: Docker.Container, shared: Duplex) {
    this.#container = container;
    this.#shared = shared;
  }

  release(bytes: Uint8Array): void {
    if (bytes.length <= MAX_SHARED_BYTES) this.#shared.end(Buffer.concat([Buffer.from(GO), bytes]));
    else void this.#releaseApart(bytes);
  }

  write(): void {
    throw new Error("an input that came at once is over");
  }

  close(): void {
    this.#closed = true;
    this.#own?.destroy();
  }

  /** Where the cell is gone by then, its end tells of it. */
  async #releaseApart(bytes: Uint8Array): Promise<void> {
    const own = await (this.#container.attach(INPUT_ONLY) as Promise<unknown> as Promise<Duplex>).catch(() => null);
    if (own === null) return void this.#shared.destroy();
    this.#own = unread(own);
    if (this.#closed) return void own.destroy();
    own.write(GO);
    own.end(bytes);
  }
}

/** Input that goes on after the gate was opened. */
class LastingInput {
  readonly #own: Duplex;

  constructor(own: Duplex) {
    this.#own = unread(own);
  }

  release(bytes: Uint8Array): void {
    this.#own.write(GO);
    this.#own.write(bytes);
  }

  write(text: string): void {
    this.#own.write(text);
  }

  close(): void {
    this.#own.destroy();
  }
}

/** Nothing comes this way; it is read so that its end is seen. That it broke is for the worker's end to explain. */
function unread(input: Duplex): Duplex {
  return input.resume().on("error", () => {});
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
