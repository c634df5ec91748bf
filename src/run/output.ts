type StreamName = "stdout" | "stderr";

/** Keeps what a worker prints, both streams apart, up to a bound on both together; the rest is dropped. */
export class BoundedOutput {
  readonly #chunks: Record<StreamName, Buffer[]> = { stdout: [], stderr: [] };
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
      this.#chunks[stream].push(kept);
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
    return Buffer.concat(this.#chunks[stream]).toString("utf8");
  }
}
