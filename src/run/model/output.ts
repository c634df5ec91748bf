type StreamName = "stdout" | "stderr";

/** Keeps what a worker prints, both streams apart, up to a bound on both together; the rest is dropped. */
export class BoundedOutput {
  readonly #kept: Record<StreamName, GrowingBytes> = { stdout: new GrowingBytes(), stderr: new GrowingBytes() };
  readonly #maxBytes: number;
  readonly #onKept: (stream: StreamName, chunk: Buffer) => void;
  readonly #onOverflow: () => void;
  #bytes = 0;
  #truncated = false;

  constructor(maxBytes: number, onKept: (stream: StreamName, chunk: Buffer) => void, onOverflow: () => void) {
    this.#maxBytes = maxBytes;
    this.#onKept = onKept;
    this.#onOverflow = onOverflow;
  }

  add(stream: StreamName, chunk: Buffer): void {
    const kept = chunk.subarray(0, this.#maxBytes - this.#bytes);
    if (kept.length > 0) {
      this.#bytes += kept.length;
      this.#kept[stream].append(kept);
      this.#onKept(stream, kept);
    }
    if (kept.length < chunk.length && !this.#truncated) {
      this.#truncated = true;
      this.#onOverflow();
    }
  }

  get truncated(): boolean {
    return this.#truncated;
  }

  /** As UTF-8; a byte that is none becomes U+FFFD. */
  text(stream: StreamName): string {
    return this.#kept[stream].text();
  }
}

/** Bytes are copied together: else a worker that prints single bytes would cost a hundred times what it printed. */
class GrowingBytes {
  #bytes = Buffer.alloc(0);
  #length = 0;

  append(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.alloc(Math.max(length, this.#bytes.length * 2));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    chunk.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  text(): string {
    return this.#bytes.toString("utf8", 0, this.#length);
  }
}
