import type { SandboxError } from "../../sandbox/errors.ts";
import { formatBytes } from "../../sandbox/units.ts";
import { MAX_EDIT_BYTES, type ReadOptions, type ReadResult } from "../model/files.ts";
import { notText, unfit } from "../model/refusals.ts";
import { type ByteSource, readAll, withHead } from "./byte-source.ts";
import { contentKind, type Utf16 } from "./content-kind.ts";
import { readText } from "./read-text.ts";

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
