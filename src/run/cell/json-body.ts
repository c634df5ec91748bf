import type { IncomingMessage } from "node:http";
import { parseJson } from "../../json/parse-json.ts";

const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** How much of a request that is too large is read, so that its sender can read the answer. */
const MAX_DISCARDED_BYTES = 256 * 1024 * 1024;

/** All bodies of one run's open requests together. Parsed JSON can take twenty times its length in memory. */
const MAX_OPEN_BYTES = 16 * 1024 * 1024;

/** Counts the open request bodies of one run, from their first byte until each is answered. */
export class OpenBodies {
  #bytes = 0;

  /** False if no more is accepted; nothing is counted then. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > MAX_OPEN_BYTES) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** The JSON body of a request, or what is wrong with it. */
export async function jsonBody(
  request: IncomingMessage,
  take: (bytes: number) => boolean,
): Promise<{ ok: true; value: unknown } | { ok: false; problem: string }> {
  const text = await textWithin(request, take);
  if (text === null) {
    const problem = `The request is larger than ${MAX_BODY_BYTES} bytes, or too many large requests are open at once. Pass large data as an attachment.`;
    return { ok: false, problem };
  }
  const parsed = parseJson(text);
  return parsed.ok ? parsed : { ok: false, problem: `The request is not JSON: ${parsed.problem}` };
}

/** Null if there is too much. The rest is read and dropped: a client that is cut off while sending never reads why. */
async function textWithin(request: IncomingMessage, take: (bytes: number) => boolean): Promise<string | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let fits = true;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_DISCARDED_BYTES) break;
    fits &&= bytes <= MAX_BODY_BYTES && take(chunk.length);
    if (!fits) chunks.length = 0;
    else chunks.push(chunk);
  }
  return !fits ? null : Buffer.concat(chunks).toString("utf8");
}
