/** On every answer, errors included. Nothing that a browser gets from the service may run, be framed, be guessed or be kept. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cache-control": "no-store",
};

/** The bytes of an answer before any request was understood. */
export function rawAnswer(status: string, code: string, message: string): string {
  const body = JSON.stringify({ error: { code, message } });
  const headers = { ...SECURITY_HEADERS, "content-type": "application/json", connection: "close" };
  const lines = Object.entries({ ...headers, "content-length": String(Buffer.byteLength(body)) });
  return `HTTP/1.1 ${status}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n${body}`;
}
