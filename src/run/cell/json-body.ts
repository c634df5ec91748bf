import type { IncomingMessage } from "node:http";
import { parseJson } from "../../json/parse-json.ts";

const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** What is read of a request that is too large, so that its sender gets to read the answer. */
const MAX_DISCARDED_BYTES = 256 * 1024 * 1024;

/** All bodies of one run's open requests together. What is made of JSON can take twenty times its length. */
const MAX_OPEN_BYTES = 16 * 1024 * 1024;

/** Counts the bodies that one run has under way, from their first byte until each is answered. */
export class OpenBodies {
  #bytes = 0;

  /** False where no more is taken: then nothing was counted. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > MAX_OPEN_BYTES) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** The JSON that a request brings, or what is wrong with it. */
export async function jsonBody(
  request: IncomingMessage,
  take: (bytes: number) => boolean,
): Promise<{ ok: true; value: unknown } | { ok: false; problem: string }> {
  const text = await textWithin(request, take);
  if (text === null) {
    const problem = `The request is larger than ${MAX_BODY_BYTES} bytes, or too many large ones wait at once; hand large data over as an attachment.`;
    return { ok: false, problem };
  }
  const parsed = parseJson(text);
  return parsed.ok ? parsed : { ok: false, problem: `The request is not JSON: ${parsed.problem}` };
}

/** Null where there is too much. The rest is read and dropped: who is cut off while sending never reads why. */
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
