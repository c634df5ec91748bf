import type { IncomingMessage } from "node:http";
import { boundedText } from "../../json/bounded-text.ts";
import { parseJson } from "../../json/parse-json.ts";
import { ServiceFault } from "./fault.ts";

/** The type of a body, without its parameters. */
export function contentTypeOf({ headers }: IncomingMessage): string {
  return (headers["content-type"] ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}

/**
 * The body as JSON. A page of another site can send a form or plain text without asking, so nothing else is taken.
 *
 * @throws ServiceFault
 */
export async function readJson(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  if (contentTypeOf(request) !== "application/json")
    throw new ServiceFault(415, "WRONG_CONTENT_TYPE", "send the body as JSON, with `content-type: application/json`");
  refuseEncoded(request);
  const tooLarge = new ServiceFault(413, "TOO_LARGE", `the body has more than ${maxBytes} bytes`);
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge;
  const text = await boundedText(request, { maxBytes });
  if (text === null) throw tooLarge;
  return jsonIn(text, "the body");
}

/** @throws ServiceFault */
export function jsonIn(text: string, what: string): unknown {
  const parsed = parseJson(text);
  if (parsed.ok) return parsed.value;
  throw new ServiceFault(400, "WRONG_REQUEST", `${what} is not JSON that the service accepts: ${parsed.problem}`);
}

/** A small body could become a large one. */
export function refuseEncoded({ headers }: IncomingMessage): void {
  if (headers["content-encoding"] !== undefined)
    throw new ServiceFault(415, "WRONG_CONTENT_TYPE", "the service takes no compressed bodies");
}

/** True if the request brings a body. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}
