/** Text is written as UTF-8. */
export function bytesOf(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? Buffer.from(content) : content;
}
