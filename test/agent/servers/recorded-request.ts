import type { IncomingHttpHeaders } from "node:http";

/** An object of JSON that came over the wire: nothing about its fields is known. */
export type Json = Record<string, unknown>;

/** An image that was sent as an image; one that became a part of some text is none. */
export interface SentImage {
  mediaType: string;
  base64: string;
  /** Whether it came in a tool's result, not in a message of the user. */
  inToolResult: boolean;
}

/** A request as the server got it, and what its API understands by it. */
export interface RecordedRequest {
  path: string;
  headers: IncomingHttpHeaders;
  /** The body as it was sent. */
  body: Json;
  /** The key in `authorization` (without `Bearer`) or in `x-api-key`; empty when none was sent. */
  key: string;
  stream: boolean;
  /** The text that instructs the model, by whichever field the API has for it. */
  system: string;
  /** `messages` or `input` as they were sent. */
  messages: Json[];
  tools: { name: string; description: unknown; schema: unknown }[];
  images: SentImage[];
  /** Settles when the connection is done with this request: `broken` when it was left before the whole answer was sent. */
  ended: Promise<"answered" | "broken">;
}

export function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The objects in what may be a list. */
export function objects(value: unknown): Json[] {
  return Array.isArray(value) ? value.filter(isJson) : [];
}

/** The text of a content that is a string or a list of parts that have `text`. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  return objects(content)
    .map(({ text }) => (typeof text === "string" ? text : ""))
    .join("");
}

/** An image of a `data:` URL, undefined for any other URL. */
export function imageOfDataUrl(url: unknown, inToolResult: boolean): SentImage | undefined {
  const [, mediaType, base64] = /^data:([^;,]+);base64,(.*)$/s.exec(String(url)) ?? [];
  return mediaType === undefined || base64 === undefined ? undefined : { mediaType, base64, inToolResult };
}

/** The key a request carries. */
export function keyOf(headers: IncomingHttpHeaders): string {
  const own = headers["x-api-key"];
  return typeof own === "string" ? own : (headers.authorization ?? "").replace(/^Bearer /i, "");
}
