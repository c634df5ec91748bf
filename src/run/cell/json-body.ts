import type { IncomingMessage } from "node:http";
import { boundedText } from "../../json/bounded-text.ts";
import { parseJson } from "../../json/parse-json.ts";

const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** A worker may send many requests at once, and each value takes time. */
const MAX_BODY_VALUES = 100_000;
/** How much of a request that is too large is still read, so that its sender can read the answer. */
const MAX_DROPPED_BYTES = 256 * 1024 * 1024;

/** The JSON body of a request, or what is wrong with it. */
export async function jsonBody(
  request: IncomingMessage,
  take: (bytes: number) => boolean,
): Promise<{ ok: true; value: unknown } | { ok: false; problem: string }> {
  const limits = { maxBytes: MAX_BODY_BYTES, maxDroppedBytes: MAX_DROPPED_BYTES, take };
  const text = await boundedText(request, limits);
  if (text === null) {
    const problem = `The request is larger than ${MAX_BODY_BYTES} bytes, or too many large requests are open at once. Pass large data as an attachment.`;
    return { ok: false, problem };
  }
  const parsed = parseJson(text, MAX_BODY_VALUES);
  return parsed.ok ? parsed : { ok: false, problem: `The request is not JSON: ${parsed.problem}` };
}
