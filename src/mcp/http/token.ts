import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

const MAX_HEADER_CHARS = 4096;

/** True where a request carries the token. How long that takes to find out tells nothing of the token. */
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
