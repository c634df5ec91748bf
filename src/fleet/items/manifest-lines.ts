import { isUtf8 } from "node:buffer";
import { DeclarationError } from "../../declarations/yaml/problem.ts";

/** One line that is not yet checked to be text. */
export interface ManifestLine {
  /** From 1. */
  readonly number: number;
  /** Includes the line break, if any, but no byte order mark. */
  readonly bytes: Buffer;
}

export const MAX_LINE_BYTES = 1024 * 1024;
const LINE_BREAK = 0x0a;
const BYTE_ORDER_MARK = Buffer.from("\uFEFF");

/** The lines of a stream, in batches. Memory holds at most one chunk and one line more than the consumer took. */
export async function* manifestLines(
  stream: AsyncIterable<Uint8Array | string>,
  file: string,
  signal: AbortSignal,
): AsyncGenerator<readonly ManifestLine[]> {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  let number = 1;
  const keep = (bytes: Buffer): void => {
    keptBytes += bytes.length;
    if (keptBytes > MAX_LINE_BYTES)
      throw manifestFault(
        file,
        number,
        1,
        `the line is longer than ${MAX_LINE_BYTES} bytes; pass large data as a file`,
      );
    kept.push(bytes);
  };
  const line = (): ManifestLine => {
    const [only = Buffer.alloc(0)] = kept;
    const bytes = kept.length < 2 ? only : Buffer.concat(kept);
    kept = [];
    keptBytes = 0;
    return { number: number++, bytes: number === 2 ? withoutMark(bytes) : bytes };
  };
  for await (const piece of stream) {
    signal.throwIfAborted();
    const chunk =
      typeof piece === "string" ? Buffer.from(piece) : Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    const lines: ManifestLine[] = [];
    let begin = 0;
    for (let found = chunk.indexOf(LINE_BREAK); found >= 0; found = chunk.indexOf(LINE_BREAK, begin)) {
      keep(chunk.subarray(begin, found + 1));
      lines.push(line());
      begin = found + 1;
    }
    if (begin < chunk.length) keep(chunk.subarray(begin));
    if (lines.length > 0) yield lines;
  }
  if (keptBytes > 0) yield [line()];
}

/** The line without its line break. Throws if it is not UTF-8. */
export function manifestLineText({ number, bytes }: ManifestLine, file: string): string {
  const text = bytes.toString();
  if (!isUtf8(bytes)) throw manifestFault(file, number, text.indexOf("\uFFFD") + 1, "this is not UTF-8");
  return text.replace(/\r?\n$/, "");
}

function withoutMark(bytes: Buffer): Buffer {
  const marked = bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
  return marked ? bytes.subarray(BYTE_ORDER_MARK.length) : bytes;
}

/** An error in a manifest, with its position. It ends the reading. */
export function manifestFault(file: string, line: number, column: number, message: string): DeclarationError {
  return new DeclarationError([{ file, line, column, path: "", message }]);
}
