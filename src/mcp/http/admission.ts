import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { boundedText } from "../../json/bounded-text.ts";
import { parseJson } from "../../json/parse-json.ts";
import { onlyHost } from "../../platform/http.ts";
import { isUnambiguous } from "../../platform/http-connections.ts";
import { MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES } from "../protocol-server.ts";

/** A request that a server was sent: Node leaves these open for what a client is answered with. */
export type HttpRequest = IncomingMessage & { readonly method: string; readonly url: string };

/**
 * True for a request that was meant for this very server. A web page whose name was made to mean 127.0.0.1 (DNS
 * rebinding) sends its own name as `Host`, and any page sends its own `Origin`; programs send no `Origin`.
 */
export function isLocalRequest(request: IncomingMessage, port: number): boolean {
  const { headers, rawHeaders } = request;
  const names = [`127.0.0.1:${port}`, `localhost:${port}`];
  const { origin } = headers;
  const host = onlyHost(rawHeaders);
  if (!isUnambiguous(request) || host === null || !names.includes(host)) return false;
  return origin === undefined || names.some((name) => origin.toLowerCase() === `http://${name}`);
}

const MAX_HEADER_CHARS = 4096;

/** True if a request carries the token. The duration of the check reveals nothing about the token. */
export function carriesToken({ headers }: Pick<IncomingMessage, "headers">, token: string): boolean {
  const { authorization = "" } = headers;
  if (authorization.length > MAX_HEADER_CHARS) return false;
  const given = /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  return given !== undefined && timingSafeEqual(digestOf(given), digestOf(token));
}

/** Of one length, whatever was given. */
function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Of all clients. */
export const MAX_OPEN_BYTES = 4 * MAX_MESSAGE_BYTES;

export type Body =
  | { readonly ok: true; readonly json: unknown }
  | { readonly ok: false; readonly status: 400 | 413; readonly reason: string };

/** The body of a request, as JSON. `take`: false if there is no room for so many bytes. Nothing of one that says to be too long is read, and no more than that of any. */
export async function readBody(request: IncomingMessage, take: (bytes: number) => boolean): Promise<Body> {
  if (Number(request.headers["content-length"] ?? 0) > MAX_MESSAGE_BYTES) return TOO_LONG;
  // A client that breaks off is no trouble of the server.
  const text = await boundedText(request, { maxBytes: MAX_MESSAGE_BYTES, take }).catch(() => undefined);
  if (text === undefined) return { ok: false, status: 400, reason: "the request ended in the middle" };
  if (text === null) return TOO_LONG;
  const parsed = parseJson(text, MAX_MESSAGE_VALUES);
  if (!parsed.ok)
    return { ok: false, status: 400, reason: `the body is not JSON that this server accepts: ${parsed.problem}` };
  return { ok: true, json: parsed.value };
}

const TOO_LONG: Body = {
  ok: false,
  status: 413,
  reason: `a body has at most ${MAX_MESSAGE_BYTES} bytes, and all open ones together ${MAX_OPEN_BYTES}`,
};

/** Answers a request that never reaches the protocol, in the protocol's form all the same. */
export function refuse(
  response: ServerResponse,
  status: number,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  // What was not read of the request would be taken for the next one.
  response.writeHead(status, { "content-type": "application/json", connection: "close", ...headers });
  response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32_000, message }, id: null }));
}
