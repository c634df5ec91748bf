/** What a command's own launcher says before the command begins is short. */
const MAX_BYTES = 1024;

/** Takes the first line off a stream; the rest is passed on. */
export class FirstLine {
  #begun = Buffer.alloc(0);
  #line: string | null = null;

  /** What follows the line in this piece of the stream. */
  add(chunk: Buffer): Buffer {
    if (this.#line !== null) return chunk;
    this.#begun = Buffer.concat([this.#begun, chunk.subarray(0, MAX_BYTES)]);
    const end = this.#begun.indexOf("\n");
    if (end < 0) return Buffer.alloc(0);
    this.#line = this.#begun.toString("latin1", 0, end);
    const taken = end + 1 - (this.#begun.length - Math.min(chunk.length, MAX_BYTES));
    return chunk.subarray(taken);
  }

  /** Null where the stream has no whole line yet. */
  get line(): string | null {
    return this.#line;
  }
}
