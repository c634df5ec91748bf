import type { IncomingMessage } from "node:http";
import type { Redactor } from "../../secrets/redactor.ts";
import { endToEnd, type HeaderLines, headerLines, valuesOf } from "./headers.ts";
import { type Replacement, replacedText } from "./replaced-bytes.ts";

/** These would lead the client away from the plain HTTP of its cell. */
const NOT_FOR_CELLS = ["alt-svc", "strict-transport-security", "public-key-pins", "clear-site-data"];
const WITH_URLS = ["location", "content-location", "link", "refresh"];

export interface Changes {
  /** How a URL of the host is written in the cell. */
  readonly urls: (text: string) => string;
  readonly replacements: readonly Replacement[];
  readonly redactor: Redactor | null;
  /** True if the body may become longer or shorter. */
  readonly isBodyChanged: boolean;
}

/** The headers of an answer as the cell gets them, as Node's flat list. */
export function incomingHeaders(
  answer: IncomingMessage,
  { urls, replacements, redactor, isBodyChanged }: Changes,
): string[] {
  const dropped = new Set([...NOT_FOR_CELLS, ...(isBodyChanged ? ["content-length", "accept-ranges"] : [])]);
  const kept = endToEnd(headerLines(answer.rawHeaders)).filter(([name]) => !dropped.has(name.toLowerCase()));
  return kept.flatMap(([name, value]) => {
    const inside = WITH_URLS.includes(name.toLowerCase()) ? replacedText(urls(value), replacements) : value;
    return redactor === null ? [name, inside] : [redactor.text(name).replace(/[^\w-]/g, "-"), redactor.text(inside)];
  });
}

/** Null if the answer can be read in one way; else why not. */
export function answerFormFault(answer: IncomingMessage, whole: boolean): string | null {
  if ((answer.statusCode ?? 0) < 200) return "no status";
  const lines: HeaderLines = headerLines(answer.rawHeaders);
  const codings = valuesOf(lines, "transfer-encoding");
  if (codings.length > 1 || (codings[0] ?? "chunked").toLowerCase() !== "chunked")
    return "an unknown Transfer-Encoding";
  const encoded = valuesOf(lines, "content-encoding").some((value) => value.trim().toLowerCase() !== "identity");
  return whole && encoded ? "an encoding that was not asked for, so Corral cannot read it" : null;
}
