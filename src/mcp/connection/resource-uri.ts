import { MAX_PATH_BYTES, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";

const PREFIX = "corral:///";
/** Every byte may be written as three characters. */
const MAX_URI_CHARS = PREFIX.length + 3 * MAX_PATH_BYTES;

/** RFC 6570: `+` keeps the slashes of a path. */
export const URI_TEMPLATE = `${PREFIX}{+path}`;

export type ResourcePath =
  | { readonly ok: true; readonly path: VirtualPath }
  | { readonly ok: false; readonly reason: string };

/** The URI of a virtual path. */
export function resourceUri(path: VirtualPath): string {
  return PREFIX + path.slice(1).split("/").map(encodeURIComponent).join("/");
}

/**
 * The virtual path that a URI means. Read by hand: a parser of URLs would quietly work out `..`, and drop what is behind
 * a `#`. Each component is decoded once, and by itself.
 */
export function resourcePath(uri: string): ResourcePath {
  if (uri.length > MAX_URI_CHARS) return refuse("it is too long");
  if (!uri.startsWith(PREFIX)) return refuse(`it does not begin with ${PREFIX}`);
  const rest = uri.slice(PREFIX.length);
  if (/[?#]/.test(rest)) return refuse("it has a query or a fragment; write `?` as %3F and `#` as %23");
  const parts: string[] = [];
  for (const written of rest.split("/").filter((part) => part !== "")) {
    const part = decoded(written);
    if (part === null) return refuse("it has a `%` that begins no character of UTF-8");
    if (part === "." || part === "..") return refuse("it has a component `.` or `..`");
    if (part.includes("/")) return refuse("it has a slash that is encoded");
    parts.push(part);
  }
  return parseVirtualPath(`/${parts.join("/")}`);
}

function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

function refuse(reason: string): ResourcePath {
  return { ok: false, reason };
}
