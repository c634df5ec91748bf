/**
 * Bytes that sort paths by components, so that paths below a path follow it directly: `/a`, `/a/c`, `/a-b`. Each component
 * ends with a zero byte, which no path contains. Extra slashes are ignored.
 */
export function outputKey(path: string): Buffer {
  const parts = path.split("/").filter((part) => part !== "");
  return Buffer.from(parts.map((part) => `${part}\0`).join(""));
}

/** The path of a key. */
export function pathOf(bytes: Uint8Array): string {
  return `/${Buffer.from(bytes).toString("utf8").split("\0").slice(0, -1).join("/")}`;
}
