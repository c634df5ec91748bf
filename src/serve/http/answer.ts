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

/** How long a client may leave a piece of a stream unread. A whole answer has this time, and more for its length. */
const STALL_MS = 30_000;
/** The slowest client that reads. */
const LEAST_BYTES_PER_MS = 16;

/** How long clients may take to read. */
export interface Patience {
  readonly stallMs?: number;
  readonly leastBytesPerMs?: number;
  /** A client took longer: its connection was closed, and is free for others. */
  readonly onUnread?: () => void;
}

/** Sends an answer whole, at the pace of the client: one piece is in memory. */
export async function send(response: ServerResponse, answer: Answer, patience: Patience = {}): Promise<void> {
  if ("json" in answer) return sendJson(response, answer.status, answer.json, patience);
  if (!("pieces" in answer)) return void response.writeHead(answer.status, SECURITY_HEADERS).end();
  const { contentType, headers = {}, pieces } = answer;
  response.writeHead(200, { ...SECURITY_HEADERS, "content-type": contentType, ...headers });
  response.flushHeaders();
  for await (const piece of pieces) {
    if (response.destroyed) return;
    if (response.write(piece)) continue;
    using _ = closedAfter(response, patience);
    const waiting = new AbortController();
    const ends = ["drain", "close"].map((event) => once(response, event, { signal: waiting.signal }));
    await Promise.race(ends).catch(() => {});
    waiting.abort();
  }
  endWith(response, undefined, patience);
}

/** The end of an answer. What is still unread of it must be read in time. */
export function endWith(response: ServerResponse, rest: string | Uint8Array | undefined, patience: Patience): void {
  response.end(rest);
  if (response.writableFinished || response.destroyed) return;
  const timer = closedAfter(
    response,
    patience,
    Buffer.byteLength(rest ?? "") / (patience.leastBytesPerMs ?? LEAST_BYTES_PER_MS),
  );
  response.once("close", () => timer[Symbol.dispose]());
}

function closedAfter(
  response: ServerResponse,
  { stallMs = STALL_MS, onUnread = () => {} }: Patience,
  moreMs = 0,
): Disposable {
  const timer = setTimeout(() => {
    response.destroy();
    onUnread();
  }, stallMs + moreMs);
  return { [Symbol.dispose]: () => clearTimeout(timer) };
}

export function sendFault(response: ServerResponse, error: unknown, hide: HidePaths, patience: Patience = {}): void {
  const { status, body } = faultOf(error);
  if (response.headersSent) return void response.destroy();
  const further = status === 401 ? { "www-authenticate": "Bearer" } : {};
  // What was not read of the request would be taken for the next one.
  sendJson(response, status, { error: hiddenIn(body, hide) }, patience, { connection: "close", ...further });
}

function sendJson(
  response: ServerResponse,
  status: number,
  json: unknown,
  patience: Patience,
  headers: Record<string, string> = {},
): void {
  const text = `${JSON.stringify(json)}\n`;
  const length = String(Buffer.byteLength(text));
  response.writeHead(status, {
    ...SECURITY_HEADERS,
    "content-type": "application/json; charset=utf-8",
    "content-length": length,
    ...headers,
  });
  endWith(response, text, patience);
}
