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
