import type { SandboxError } from "../../sandbox/errors.ts";
import { counted, formatBytes } from "../../text/amounts.ts";
import { MAX_EDIT_BYTES, type ReadOptions, type ReadResult, type TextResult } from "../model/files.ts";
import { notText, UnshownContentError, unfit } from "../model/refusals.ts";

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
async function readWindow(source: ByteSource, start: number, bounds: WindowBounds): Promise<TextWindow | null> {
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

const NEWLINE = 0x0a;
/** How much is held in memory at a time. */
const CHUNK_BYTES = 1024 ** 2;
/** The most that is read only to count lines. */
const MAX_COUNTED_BYTES = 64 * 1024 ** 2;

/** Where a line begins. If `position` is null, the file has no such line, and `lines` is how many it has. */
export interface LineStart {
  readonly position: number | null;
  readonly lines: number;
}

/** `line` counts from 1. Reads the file in chunks up to that line. */
async function findLine(source: ByteSource, line: number, signal?: AbortSignal): Promise<LineStart> {
  let newlines = 0;
  let endsInNewline = true;
  let position = 0;
  while (newlines < line - 1) {
    signal?.throwIfAborted();
    const chunk = await source.read(position, CHUNK_BYTES);
    if (chunk.length === 0) return { position: null, lines: newlines + (endsInNewline ? 0 : 1) };
    let at = -1;
    while (newlines < line - 1) {
      at = chunk.indexOf(NEWLINE, at + 1);
      if (at < 0) break;
      newlines++;
    }
    endsInNewline = chunk.at(-1) === NEWLINE;
    position += at < 0 ? chunk.length : at + 1;
  }
  // A newline ends a line, so nothing begins after the last one.
  if (position >= source.size && line > 1) return { position: null, lines: newlines };
  return { position, lines: newlines };
}

/** The number of lines that begin at or after `position`. Null if counting would take too long. */
async function countLinesFrom(source: ByteSource, position: number, signal?: AbortSignal): Promise<number | null> {
  if (source.size - position > MAX_COUNTED_BYTES) return null;
  let lines = 0;
  let last = NEWLINE;
  for (let from = position; from < source.size; ) {
    signal?.throwIfAborted();
    const chunk = await source.read(from, CHUNK_BYTES);
    if (chunk.length === 0) break;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines++;
    last = chunk.at(-1) ?? NEWLINE;
    from += chunk.length;
  }
  return last === NEWLINE ? lines : lines + 1;
}

export const DEFAULT_CHARS = 200_000;
export const MAX_CHARS = 2_000_000;

/** A window of a text file, in whole lines. Only a line longer than `maxChars` is cut, between characters. */
export async function readText(source: ByteSource, path: string, options: ReadOptions): Promise<TextResult> {
  const { signal } = options;
  const offset = positive(path, "offset", options.offset ?? 1);
  const column = positive(path, "column", options.column ?? 1);
  const limit = positive(path, "limit", options.limit ?? Number.MAX_SAFE_INTEGER);
  const maxChars = Math.min(positive(path, "maxChars", options.maxChars ?? DEFAULT_CHARS), MAX_CHARS);

  const start = await findLine(source, offset, signal);
  if (start.position === null) return afterTheEnd(source.size, offset, start.lines);
  const window = await readWindow(source, start.position, { column, limit, maxChars, signal });
  if (window === null) throw notText(path, null);

  const { content, endsAt, truncatedBy } = window;
  const newlines = content.split("\n").length - 1;
  const midLine = content !== "" && !content.endsWith("\n");
  const rest = truncatedBy === null ? 0 : await countLinesFrom(source, endsAt, signal);
  const outputLines = newlines + (midLine ? 1 : 0);
  // A line that the window cuts is counted once, with its rest.
  const shown = truncatedBy !== null && midLine ? newlines : outputLines;
  const totalLines = rest === null ? null : offset - 1 + shown + rest;
  const hints = [
    truncatedBy === null ? null : goOn(offset, newlines, midLine ? (newlines === 0 ? column : 1) : null, content),
    totalLines === null ? "The file is too large to count its lines." : null,
    source.changed() ? "The file changed while it was read: read it again to get its newest content." : null,
  ].filter((hint) => hint !== null);
  return {
    type: "text",
    content,
    bytes: source.size,
    totalLines,
    outputLines,
    truncated: truncatedBy !== null,
    truncatedBy,
    hint: hints.length === 0 ? null : hints.join(" "),
  };
}

/** `column`: the column at which the last line, which was cut, began. Null if it was shown whole. */
function goOn(offset: number, newlines: number, column: number | null, content: string): string {
  const next = offset + newlines;
  if (column === null) return `There is more: continue with offset ${next}.`;
  const shown = content.length - (content.lastIndexOf("\n") + 1);
  return `Line ${next} is too long to show whole: continue with offset ${next} and column ${column + shown}.`;
}

function afterTheEnd(bytes: number, offset: number, lines: number): TextResult {
  const hint = `The file has ${counted(lines, "line")}: offset ${offset} is after its end.`;
  return {
    type: "text",
    content: "",
    bytes,
    totalLines: lines,
    outputLines: 0,
    truncated: false,
    truncatedBy: null,
    hint,
  };
}

function positive(path: string, name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw unfit("read", path, `${name} must be a whole number of at least 1.`);
}

/** An opened file, with the size that it had when it was opened. Bytes appended later are not part of it. */
export interface ByteSource {
  readonly size: number;
  /** Up to `length` bytes from `position`; fewer only at the end of the file, or if it was truncated. */
  read(position: number, length: number): Promise<Buffer>;
  /** True if the file changed since it was opened. */
  changed(): boolean;
}

/** The same source with its first bytes in memory, so that a small file is read once. */
export function withHead(source: ByteSource, head: Buffer): ByteSource {
  return {
    size: source.size,
    changed: () => source.changed(),
    read: async (position, length) => {
      const end = Math.min(position + length, source.size);
      return end <= head.length ? head.subarray(position, Math.max(position, end)) : source.read(position, length);
    },
  };
}

/** The whole content. The caller has checked that it is small. */
export async function readAll(source: ByteSource): Promise<Buffer> {
  return source.read(0, source.size);
}

type ContentKind =
  | { readonly kind: "text" }
  /** Text in UTF-16, with a byte order mark. */
  | { readonly kind: "utf16"; readonly encoding: Utf16 }
  | { readonly kind: "image"; readonly mimeType: string }
  | { readonly kind: "binary"; readonly mimeType: string | null };

/** How much of a file is inspected to detect its kind. */
const SNIFFED_BYTES = 8192;

/** Image types that models and people can view. Other types are binary content. */
const IMAGES: ReadonlySet<string> = new Set([
  "image/apng",
  "image/avif",
  "image/bmp",
  "image/gif",
  "image/heic",
  "image/jpeg",
  "image/png",
  "image/tiff",
  "image/webp",
  "image/x-icon",
]);

/** Detected from the content, never from the name, which a worker chose. `head` is the beginning of the file. */
async function contentKind(head: Buffer): Promise<ContentKind> {
  if (looksLikeText(head.subarray(0, SNIFFED_BYTES))) return { kind: "text" };
  const encoding = utf16Of(head);
  if (encoding !== null) return { kind: "utf16", encoding };
  // Loaded only here: most files are text, and the tables of file types are large.
  const { fileTypeFromBuffer } = await import("file-type");
  const type = await fileTypeFromBuffer(head);
  if (type !== undefined && IMAGES.has(type.mime)) return { kind: "image", mimeType: type.mime };
  return { kind: "binary", mimeType: type?.mime ?? null };
}

type Utf16 = "utf-16le" | "utf-16be";

/** Recognised by its byte order mark. That of UTF-32, which begins like one, is not. */
export function utf16Of(head: Buffer): Utf16 | null {
  const mark = head.length < 2 ? 0 : head.readUInt16BE(0);
  if (mark === 0xfeff) return "utf-16be";
  const isUtf32 = head.length >= 4 && head.readUInt16BE(2) === 0;
  return mark === 0xfffe && !isUtf32 ? "utf-16le" : null;
}

/** UTF-8 without NUL. The last character of the sample may be incomplete. */
function looksLikeText(sample: Buffer): boolean {
  if (sample.includes(0)) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(sample, { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** An image is returned whole, so it must fit into memory and into a message. */
const MAX_IMAGE_BYTES = 10 * 1024 ** 2;
/** A small file is read with one call. */
const HEAD_BYTES = 64 * 1024;

/** The content of an opened file: text by lines, an image, or the text of a document. */
export async function readContent(source: ByteSource, path: string, options: ReadOptions): Promise<ReadResult> {
  const head = await source.read(0, HEAD_BYTES);
  const found = await contentKind(head);
  if (found.kind === "binary") throw notText(path, found.mimeType);
  const whole = withHead(source, head);
  if (found.kind === "text") return readText(whole, path, options);
  if (found.kind === "utf16") return readUtf16(await utf8Of(whole, path, found.encoding), source.size, path, options);
  if (source.size > MAX_IMAGE_BYTES) throw largeImage(path, source.size);
  const content = await readAll(whole);
  return { type: "image", content, bytes: content.length, mimeType: found.mimeType };
}

/** As text in UTF-8, since everything is written as UTF-8. */
async function utf8Of(source: ByteSource, path: string, encoding: Utf16): Promise<Buffer> {
  if (source.size > MAX_EDIT_BYTES) throw largeUtf16(path, source.size);
  try {
    return Buffer.from(new TextDecoder(encoding, { fatal: true }).decode(await readAll(source)));
  } catch (error) {
    throw error instanceof TypeError ? notText(path, null) : error;
  }
}

async function readUtf16(text: Buffer, bytes: number, path: string, options: ReadOptions): Promise<ReadResult> {
  const source = {
    size: text.length,
    read: async (position: number, length: number) => text.subarray(position, position + length),
    changed: () => false,
  };
  const read = await readText(source, path, options);
  const hint = [read.hint, "The file is UTF-16 text. Tools write UTF-8: to change it, write it anew as a whole."];
  return { ...read, bytes, hint: hint.filter((part) => part !== null).join(" ") };
}

function largeUtf16(path: string, bytes: number): SandboxError {
  const reason = `it is UTF-16 text of ${formatBytes(bytes)}, and at most ${formatBytes(MAX_EDIT_BYTES)} are converted`;
  return unfit("read", path, `${reason}. Convert it to UTF-8 with a command.`);
}

/** The sandbox allows such a file, but an answer cannot hold it. */
function largeImage(path: string, bytes: number): SandboxError {
  const reason = `it is an image of ${formatBytes(bytes)}, and at most ${formatBytes(MAX_IMAGE_BYTES)} are shown`;
  return new UnshownContentError(path, "read", `${reason}.`);
}
