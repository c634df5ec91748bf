import type { SandboxError } from "../../sandbox/errors.ts";
import { formatBytes } from "../../text/amounts.ts";
import { MAX_EDIT_BYTES, type ReadOptions, type ReadResult } from "../model/files.ts";
import { notText, unfit } from "../model/refusals.ts";
import { type ByteSource, readAll, readText, withHead } from "./read-text.ts";

export type ContentKind =
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

export type Utf16 = "utf-16le" | "utf-16be";

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
  return unfit("read", path, `${reason}. Pass it as an attachment to a worker that can make it smaller.`);
}
