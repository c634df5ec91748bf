import type { SandboxError } from "../../sandbox/errors.ts";
import { formatBytes } from "../../sandbox/units.ts";
import type { ReadOptions, ReadResult } from "../model/files.ts";
import { notText, unfit } from "../model/refusals.ts";
import { type ByteSource, readAll, withHead } from "./byte-source.ts";
import { contentKind } from "./content-kind.ts";
import { readText } from "./read-text.ts";

/** An image is returned whole, so it must fit into memory and into a message. */
const MAX_IMAGE_BYTES = 20 * 1024 ** 2;
/** A small file is read with one call. */
const HEAD_BYTES = 64 * 1024;

/** The content of an opened file: text by lines, an image, or the text of a document. */
export async function readContent(source: ByteSource, path: string, options: ReadOptions): Promise<ReadResult> {
  const head = await source.read(0, HEAD_BYTES);
  const found = await contentKind(head);
  if (found.kind === "binary") throw notText(path, found.mimeType);
  const whole = withHead(source, head);
  if (found.kind === "text") return readText(whole, path, options);
  if (source.size > MAX_IMAGE_BYTES) throw largeImage(path, source.size);
  const content = await readAll(whole);
  return { type: "image", content, bytes: content.length, mimeType: found.mimeType };
}

/** The sandbox allows such a file, but an answer cannot hold it. */
function largeImage(path: string, bytes: number): SandboxError {
  const reason = `it is an image of ${formatBytes(bytes)}, and at most ${formatBytes(MAX_IMAGE_BYTES)} are shown`;
  return unfit("read", path, `${reason}. Pass it as an attachment to a worker that can make it smaller.`);
}
