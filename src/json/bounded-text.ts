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
