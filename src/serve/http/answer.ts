import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { faultOf } from "./fault.ts";
import { type HidePaths, hiddenIn } from "./host-paths.ts";
import { SECURITY_HEADERS } from "./security-headers.ts";

/** What a route answers with. */
export type Answer =
  | { readonly status: number; readonly json: unknown }
  | { readonly status: 204 }
  | {
      readonly status: 200;
      readonly contentType: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly pieces: AsyncIterable<Uint8Array | string>;
    };

/** How long a client may leave a piece of a stream unread. */
const STALL_MS = 30_000;

/** Sends an answer whole, at the pace of the client: one piece is in memory. */
export async function send(response: ServerResponse, answer: Answer, stallMs = STALL_MS): Promise<void> {
  if ("json" in answer) return sendJson(response, answer.status, answer.json);
  if (!("pieces" in answer)) return void response.writeHead(answer.status, SECURITY_HEADERS).end();
  const { contentType, headers = {}, pieces } = answer;
  response.writeHead(200, { ...SECURITY_HEADERS, "content-type": contentType, ...headers });
  response.flushHeaders();
  for await (const piece of pieces) {
    if (response.destroyed) return;
    if (response.write(piece)) continue;
    // Its connection is free for others then.
    const timer = setTimeout(() => response.destroy(), stallMs);
    const waiting = new AbortController();
    const ends = ["drain", "close"].map((event) => once(response, event, { signal: waiting.signal }));
    await Promise.race(ends).catch(() => {});
    waiting.abort();
    clearTimeout(timer);
  }
  response.end();
}

export function sendFault(response: ServerResponse, error: unknown, hide: HidePaths): void {
  const { status, body } = faultOf(error);
  if (response.headersSent) return void response.destroy();
  const further = status === 401 ? { "www-authenticate": "Bearer" } : {};
  // What was not read of the request would be taken for the next one.
  sendJson(response, status, { error: hiddenIn(body, hide) }, { connection: "close", ...further });
}

function sendJson(response: ServerResponse, status: number, json: unknown, headers: Record<string, string> = {}): void {
  const text = `${JSON.stringify(json)}\n`;
  const length = String(Buffer.byteLength(text));
  response.writeHead(status, {
    ...SECURITY_HEADERS,
    "content-type": "application/json; charset=utf-8",
    "content-length": length,
    ...headers,
  });
  response.end(text);
}
