import type { Attempt, Step, TlsStep } from "./attempt.ts";

/** The proxy in a cell (src/sandbox/network/rule.ts). */
export const AT_PROXY = { host: "127.88.0.1", port: 3128 } as const;

export interface At {
  readonly host: string;
  readonly port: number;
}

/** Sends these bytes and waits for the end. */
export const raw = (at: At, text: string, ...more: readonly Step[]): Attempt => ({
  ...at,
  steps: [["send", text], ...more],
});

/** TLS as clients do it, and then a request. */
export const overTls = (at: At, tls: TlsStep, request: string): Attempt => ({
  ...at,
  steps: [
    ["tls", tls],
    ["send", request],
  ],
});

/** Asks the proxy for this authority as it is written, and then says `next` to whoever answers. */
export const connectTo = (authority: string, ...next: readonly Step[]): Attempt => ({
  ...AT_PROXY,
  steps: [["send", `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`], ["until", "\r\n\r\n"], ...next],
});

/** A request that ends its connection. `lines` are further header lines. */
export const get = (host: string, path: string, ...lines: readonly string[]): string =>
  request("GET", path, [`Host: ${host}`, "Connection: close", ...lines]);

export const request = (method: string, path: string, lines: readonly string[], body = ""): string =>
  `${method} ${path} HTTP/1.1\r\n${lines.map((line) => `${line}\r\n`).join("")}\r\n${body}`;
