import type { Duplex, Readable } from "node:stream";
import type Docker from "dockerode";
import { GateStreams, pour } from "../gate/gate-streams.ts";
import { GO } from "../gate/report.ts";

/** Receives a piece of one stream. */
export type OnChunk = (stream: "stdout" | "stderr", chunk: Buffer) => void;

const HEADER_BYTES = 8;
const STDOUT = 1;
const STDERR = 2;
/** The Engine copies through buffers of a few times ten thousand bytes; a larger frame was misread. */
const MAX_FRAME_BYTES = 16 * 1024 * 1024;

/**
 * Takes an attached connection apart into the two streams: frames of a header (the stream's number, three zeros, the
 * length in four bytes) and that many bytes, cut anywhere. Pieces of a frame are passed on as they come, so nothing
 * is held back but a header.
 *
 * The client library's own recurses once for each frame: a worker that prints single bytes fast enough fills a chunk
 * with thousands of frames, and overflows the stack.
 */
export class Demultiplexer {
  readonly #onChunk: OnChunk;
  #header = Buffer.alloc(0);
  #stream: "stdout" | "stderr" = "stdout";
  #missing = 0;

  constructor(onChunk: OnChunk) {
    this.#onChunk = onChunk;
  }

  /** False if the bytes are not such frames: nothing that follows can be read then. */
  add(chunk: Buffer): boolean {
    let rest: Buffer | null = chunk;
    while (rest !== null && rest.length > 0) {
      rest = this.#missing === 0 ? this.#addHeader(rest) : this.#addContent(rest);
    }
    return rest !== null;
  }

  /** False in the middle of a frame. */
  get isWhole(): boolean {
    return this.#missing === 0 && this.#header.length === 0;
  }

  #addHeader(chunk: Buffer): Buffer | null {
    const wanted = HEADER_BYTES - this.#header.length;
    const header = Buffer.concat([this.#header, chunk.subarray(0, wanted)]);
    const complete = header.length === HEADER_BYTES;
    this.#header = complete ? Buffer.alloc(0) : header;
    if (complete) {
      const number = header.readUInt8(0);
      this.#missing = header.readUInt32BE(4);
      if ((number !== STDOUT && number !== STDERR) || this.#missing > MAX_FRAME_BYTES) return null;
      this.#stream = number === STDOUT ? "stdout" : "stderr";
    }
    return chunk.subarray(wanted);
  }

  #addContent(chunk: Buffer): Buffer {
    const content = chunk.subarray(0, this.#missing);
    this.#missing -= content.length;
    this.#onChunk(this.#stream, content);
    return chunk.subarray(content.length);
  }
}

/** The attached standard streams of a cell: first the gate's report, and after {@link AttachedStreams.release} the worker's output. */
export interface AttachedStreams {
  /** The whole report; rejects if the cell ends, or prints too much, before the report is complete. */
  readonly report: Promise<string>;
  /** Opens the gate. A lasting input stays open until {@link AttachedStreams.close}, or until this process ends. */
  release(input: Uint8Array, rest?: Readable): void;
  /** More of a lasting input. */
  write(text: string): void;
  /** True if the gate has reported that it became the worker. */
  hasBegun(): boolean;
  /** Whether a signal ended the worker, whose exit code is `code`; absent if that is not known. When the streams have ended. */
  endedBySignal(code: number): boolean | undefined;
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
): Promise<AttachedStreams> {
  const isShared = kind === "at-once";
  const [own, output] = (await Promise.all([
    isShared ? null : container.attach(INPUT_ONLY),
    container.attach({ stream: true, hijack: true, stdin: isShared, stdout: true, stderr: true }),
  ])) as [Duplex | null, Duplex];
  const input = own === null ? new InputAtOnce(container, output) : new LastingInput(own);

  const gate = new GateStreams(onOutput);
  const streams = new Demultiplexer((name, chunk) => gate.add(name, chunk));
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
    hasBegun: () => gate.hasBegun,
    endedBySignal: (code) => gate.endedBySignal(code),
    release(bytes, rest) {
      gate.release();
      input.release(bytes, rest);
    },
    write: (text) => input.write(text),
    close() {
      gate.close();
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

  release(bytes: Uint8Array, rest?: Readable): void {
    if (rest === undefined && bytes.length <= MAX_SHARED_BYTES)
      this.#shared.end(Buffer.concat([Buffer.from(GO), bytes]));
    else void this.#releaseApart(bytes, rest);
  }

  write(_text: string): void {
    throw new Error("the whole input was written already");
  }

  close(): void {
    this.#closed = true;
    this.#own?.destroy();
  }

  /** If the cell has ended already, its exit reports that. */
  async #releaseApart(bytes: Uint8Array, rest?: Readable): Promise<void> {
    const own = await (this.#container.attach(INPUT_ONLY) as Promise<unknown> as Promise<Duplex>).catch(() => null);
    if (own === null) return void this.#shared.destroy();
    this.#own = unread(own);
    if (this.#closed) return void own.destroy();
    const first = Buffer.concat([Buffer.from(GO), bytes]);
    if (rest === undefined) own.end(first);
    else pour(first, rest, own);
  }
}

/** Input that continues after the gate was opened. */
class LastingInput {
  readonly #own: Duplex;

  constructor(own: Duplex) {
    this.#own = unread(own);
  }

  release(bytes: Uint8Array, rest?: Readable): void {
    const first = Buffer.concat([Buffer.from(GO), bytes]);
    if (rest === undefined) this.#own.write(first);
    else pour(first, rest, this.#own);
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
