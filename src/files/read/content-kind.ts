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
export async function contentKind(head: Buffer): Promise<ContentKind> {
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
