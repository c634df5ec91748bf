export interface TextLimits {
  readonly maxBytes: number;
  /** Called with the size of each chunk. False: there is no room for it. */
  readonly take?: (bytes: number) => boolean;
  /** How much of a longer text is still read and dropped, so that its sender can read the answer. Absent: nothing. */
  readonly maxDroppedBytes?: number;
}

/** Reads a stream as UTF-8 text. Null if it is too long. */
export async function boundedText(
  chunks: AsyncIterable<Buffer | string>,
  { maxBytes, take = () => true, maxDroppedBytes = 0 }: TextLimits,
): Promise<string | null> {
  const kept: Buffer[] = [];
  let bytes = 0;
  let fits = true;
  for await (const chunk of chunks) {
    const buffer = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    bytes += buffer.length;
    fits &&= bytes <= maxBytes && take(buffer.length);
    if (fits) kept.push(buffer);
    else kept.length = 0;
    if (!fits && bytes > maxDroppedBytes) break;
  }
  return fits ? Buffer.concat(kept).toString("utf8") : null;
}

/** Counts the bytes of all open requests of a server, from their first byte until they are answered. */
export class OpenBytes {
  readonly #max: number;
  #bytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** False if there is no room for the bytes, which are then not counted. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > this.#max) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}
