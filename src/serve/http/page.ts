import type { IncomingMessage, ServerResponse } from "node:http";
import type { PageFile } from "../page/page-files.ts";
import { endWith, type Patience } from "./answer.ts";
import { SECURITY_HEADERS } from "./security-headers.ts";

/**
 * What the page may do: load its own files, and ask its own service. Texts of workers can neither become a script nor a style, nor
 * be sent elsewhere, and no text can become HTML (trusted types).
 */
const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

/** Sends a file of the page. */
export function sendPage(request: IncomingMessage, response: ServerResponse, file: PageFile, patience: Patience): void {
  const isGzip = /(?:^|[ ,])gzip(?:$|[ ,])/.test(String(request.headers["accept-encoding"] ?? ""));
  const bytes = isGzip ? file.gzipped : file.bytes;
  response.writeHead(200, {
    ...SECURITY_HEADERS,
    "content-security-policy": PAGE_POLICY,
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": file.cacheControl,
    "content-type": file.contentType,
    "content-length": String(bytes.length),
    vary: "accept-encoding",
    ...(isGzip ? { "content-encoding": "gzip" } : {}),
  });
  endWith(response, request.method === "HEAD" ? undefined : bytes, patience);
}
