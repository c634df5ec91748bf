import type { ByteSource } from "./byte-source.ts";

export interface WindowBounds {
  readonly column: number;
  readonly limit: number;
  readonly maxChars: number;
  readonly signal?: AbortSignal | undefined;
}

export interface TextWindow {
  readonly content: string;
  /** The byte after the last one of `content`. */
  readonly endsAt: number;
  readonly truncatedBy: "lines" | "chars" | null;
}

/** How much is decoded at a time. It is little, since what follows the window may not be text. */
const PIECE_BYTES = 64 * 1024;

/** The text from the byte `start`, which begins a line, within the bounds. Null if it is not UTF-8. */
export async function readWindow(source: ByteSource, start: number, bounds: WindowBounds): Promise<TextWindow | null> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let skip = bounds.column - 1;
  let begin = start;
  let content = "";
  let newlines = 0;
  for (let position = start; ; ) {
    bounds.signal?.throwIfAborted();
    const bytes = await source.read(position, PIECE_BYTES);
    position += bytes.length;
    const last = bytes.length === 0 || position >= source.size;
    const piece = decoded(decoder, bytes, !last);
    if (piece === null) return null;

    const skipped = toSkip(piece, skip);
    skip = skipped < piece.length ? 0 : skip - skipped;
    begin += Buffer.byteLength(piece.slice(0, skipped));
    const seen = content.length;
    content += piece.slice(skipped);
    const cut = cutAt(content, seen, newlines, bounds);
    if (cut.at !== null) {
      // The byte after the window is known from the text: valid UTF-8 has one encoding.
      const end = begin + Buffer.byteLength(content.slice(0, cut.at));
      const complete = last && cut.at === content.length;
      return { content: content.slice(0, cut.at), endsAt: end, truncatedBy: complete ? null : cut.by };
    }
    newlines = cut.newlines;
    if (last) return { content, endsAt: begin + Buffer.byteLength(content), truncatedBy: null };
  }
}

function decoded(decoder: InstanceType<typeof TextDecoder>, bytes: Buffer, stream: boolean): string | null {
  try {
    return decoder.decode(bytes, { stream });
  } catch {
    return null;
  }
}

/** Stops at the end of the line, and never splits a surrogate pair. */
function toSkip(piece: string, skip: number): number {
  const lineEnd = piece.indexOf("\n");
  const most = lineEnd < 0 ? piece.length : lineEnd;
  return skip >= most ? most : betweenCharacters(piece, skip);
}

interface Cut {
  /** Null: the window has room for more. */
  readonly at: number | null;
  readonly by: "lines" | "chars";
  readonly newlines: number;
}

function cutAt(content: string, from: number, before: number, { limit, maxChars }: WindowBounds): Cut {
  let newlines = before;
  for (let at = content.indexOf("\n", from); at >= 0; at = content.indexOf("\n", at + 1)) {
    if (at + 1 > maxChars) break;
    newlines++;
    if (newlines === limit) return { at: at + 1, by: "lines", newlines };
  }
  if (content.length <= maxChars) return { at: null, by: "chars", newlines };
  const wholeLines = content.lastIndexOf("\n", maxChars - 1) + 1;
  // At least one whole character is returned: without progress, a reader would ask for the same window forever.
  const part = betweenCharacters(content, maxChars) || maxChars + 1;
  return { at: wholeLines > 0 ? wholeLines : part, by: "chars", newlines };
}

/** `at`, or one less if it would split a surrogate pair. */
function betweenCharacters(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}
