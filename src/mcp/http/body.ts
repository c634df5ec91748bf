import type { IncomingMessage } from "node:http";

/** The same as a message on stdio may have. */
export const MAX_BODY_BYTES = 16 * 1024 ** 2;

export type Body =
  | { readonly ok: true; readonly json: unknown }
  | { readonly ok: false; readonly status: 400 | 413; readonly reason: string };

/** The body of a request, as JSON. Nothing of one that says to be too long is read, and no more than that of any. */
export async function readBody(request: IncomingMessage): Promise<Body> {
  if (Number(request.headers["content-length"] ?? 0) > MAX_BODY_BYTES) return TOO_LONG;
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) return TOO_LONG;
    chunks.push(chunk);
  }
  try {
    return { ok: true, json: JSON.parse(Buffer.concat(chunks).toString("utf8")) };
  } catch {
    return { ok: false, status: 400, reason: "the body is not JSON" };
  }
}

const TOO_LONG: Body = { ok: false, status: 413, reason: `a body has at most ${MAX_BODY_BYTES} bytes` };
