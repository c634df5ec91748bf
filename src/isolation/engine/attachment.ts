import type { Duplex } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import type Docker from "dockerode";
import { END_OF_REPORT, MAX_REPORT_BYTES } from "../gate/report.ts";
import { BEGUN, GO } from "../gate/script.ts";
import { EngineTrouble } from "../port/driver.ts";
import { Demultiplexer, type OnChunk } from "./demux.ts";

/** The attached standard streams of a cell: first the gate's report, and after {@link Attachment.release} the worker's output. */
export interface Attachment {
  /** The whole report; rejects if the cell ends, or prints too much, before the report is complete. */
  readonly report: Promise<string>;
  /** Opens the gate. A lasting input stays open until {@link Attachment.close}, or until this process ends. */
  release(input: Uint8Array): void;
  /** More of a lasting input. */
  write(text: string): void;
  /** True if the gate has reported that it became the worker. */
  hasBegun(): boolean;
  /** Settles when both streams have ended; `broken` if their connection was lost before that. */
  readonly ended: Promise<"complete" | "broken">;
  /** Nothing is delivered after this call. */
  close(): void;
}

/**
 * Attaches before the start, so that no output is missed. A worker that ends without reading all of its input breaks
 * the input's connection, which must not look like lost output. So input has a connection of its own: from the
 * beginning if it is `lasting`, else only if it is larger than what the Engine reads from a connection at once.
 */
export async function attach(
  container: Docker.Container,
  onOutput: OnChunk,
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
  const beginning = new Beginning();
  const streams = new Demultiplexer((name, chunk) => {
    if (closed) return;
    if (!released) return gate.add(name, chunk);
    const printed = name === "stdout" ? beginning.add(chunk) : chunk;
    if (printed.length > 0) onOutput(name, printed);
  });
  output.on("data", (chunk: Buffer) => {
    if (!streams.add(chunk)) output.destroy(new Error("the Engine sent data that is not the cell's output streams"));
  });
  const ended = new Promise<"complete" | "broken">((resolve) => {
    output
      .once("end", () => resolve(streams.isWhole ? "complete" : "broken"))
      .once("error", () => resolve("broken"))
      .once("close", () => resolve("broken"));
  });
  void ended.then(() => gate.end());

  return {
    report: gate.report,
    ended,
    hasBegun: () => beginning.isOver,
    release(bytes) {
      released = true;
      input.release(bytes);
    },
    write: (text) => input.write(text),
    close() {
      closed = true;
      input.close();
      output.destroy();
    },
  };
}

const INPUT_ONLY = { stream: true, hijack: true, stdin: true };

/** Input up to this size is sent in one write with the line that opens the gate: the Engine reads up to 32 KB at a time. */
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

  write(_text: string): void {
    throw new Error("the whole input was written already");
  }

  close(): void {
    this.#closed = true;
    this.#own?.destroy();
  }

  /** If the cell has ended already, its exit reports that. */
  async #releaseApart(bytes: Uint8Array): Promise<void> {
    const own = await (this.#container.attach(INPUT_ONLY) as Promise<unknown> as Promise<Duplex>).catch(() => null);
    if (own === null) return void this.#shared.destroy();
    this.#own = unread(own);
    if (this.#closed) return void own.destroy();
    own.write(GO);
    own.end(bytes);
  }
}

/** Input that continues after the gate was opened. */
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

/** Nothing arrives on an input connection; it is read to notice its end. The worker's exit explains why it broke. */
function unread(input: Duplex): Duplex {
  return input.resume().on("error", () => {});
}

/** Takes the gate's last line, which it prints when it becomes the worker, from the beginning of the output. */
class Beginning {
  #left = Buffer.from(BEGUN);

  get isOver(): boolean {
    return this.#left.length === 0;
  }

  /** What follows the line. */
  add(chunk: Buffer): Buffer {
    const length = Math.min(this.#left.length, chunk.length);
    // Anything else is of a gate that did not open: the worker has printed nothing.
    if (!chunk.subarray(0, length).equals(this.#left.subarray(0, length))) return Buffer.alloc(0);
    this.#left = this.#left.subarray(length);
    return chunk.subarray(length);
  }
}

/** Collects what the gate prints, and its errors for the message of a failure. */
class GateOutput {
  readonly #settle = Promise.withResolvers<string>();
  readonly report = this.#settle.promise;
  // A chunk may end in the middle of a character, because mount points may have any name.
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  #stdout = "";
  #stderr = "";

  constructor() {
    // The report is awaited only after the start; an earlier failure is reported then.
    this.report.catch(() => {});
  }

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    const text = this.#decoders[stream].write(chunk);
    if (stream === "stdout") this.#stdout += text;
    else this.#stderr += text;
    if (this.#stdout.length + this.#stderr.length > MAX_REPORT_BYTES) {
      this.#settle.reject(new EngineTrouble("the cell printed more than a gate report before its worker was released"));
    } else if (this.#stdout.endsWith(END_OF_REPORT)) this.#settle.resolve(this.#stdout);
  }

  end(): void {
    this.#settle.reject(
      new EngineTrouble(`the cell ended before its worker was released: ${this.#stderr.trim() || "no reason given"}`),
    );
  }
}
