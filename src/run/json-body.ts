import type { IncomingMessage } from "node:http";
import { parseJson } from "./json.ts";

const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** What is read of a request that is too large, so that its sender gets to read the answer. */
const MAX_DISCARDED_BYTES = 256 * 1024 * 1024;

/** The JSON that a request brings, or what is wrong with it. */
export async function jsonBody(
  request: IncomingMessage,
): Promise<{ ok: true; value: unknown } | { ok: false; problem: string }> {
  const text = await textWithin(request);
  if (text === null) {
    const problem = `The request is larger than ${MAX_BODY_BYTES} bytes; hand large data over as an attachment.`;
    return { ok: false, problem };
  }
  const parsed = parseJson(text);
  return parsed.ok ? parsed : { ok: false, problem: `The request is not JSON: ${parsed.problem}` };
}

/** Null where there is too much. The rest is read and dropped: who is cut off while sending never reads why. */
async function textWithin(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_DISCARDED_BYTES) break;
    if (bytes > MAX_BODY_BYTES) chunks.length = 0;
    else chunks.push(chunk);
  }
  return bytes > MAX_BODY_BYTES ? null : Buffer.concat(chunks).toString("utf8");
}
