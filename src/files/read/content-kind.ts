export type ContentKind =
  | { readonly kind: "text" }
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
  // Loaded only here: most files are text, and the tables of file types are large.
  const { fileTypeFromBuffer } = await import("file-type");
  const type = await fileTypeFromBuffer(head);
  if (type !== undefined && IMAGES.has(type.mime)) return { kind: "image", mimeType: type.mime };
  return { kind: "binary", mimeType: type?.mime ?? null };
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
