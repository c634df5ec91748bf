import { expect } from "vitest";
import { type Attack, absent, allowed, attacked, refused, type World } from "./arena.ts";
import { get, raw, request } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/*
 * Requests that are read in more than one way. `plain.test` allows GET and POST below `/open`; the server of the test takes
 * whatever Node's parser takes in its lenient form, and `front.test` is a tunnel to a server that answers for every Host.
 */

async function open(sites: Sites): Promise<World> {
  const plain = await sites.open("plain", { ports: { 8080: { kind: "http" }, 80: { kind: "http" } } });
  const addresses = [`${plain.address}/32`];
  return {
    network: {
      allow: [
        { to: "plain.test:8080", methods: ["GET", "POST"], paths: ["/open/**"], tls: false, addresses },
        { to: "front.test:80", addresses },
      ],
    },
    answers: { "plain.test": [plain.address], "front.test": [plain.address] },
    otherwise: [plain.address],
  };
}

const PLAIN = { host: "plain.test", port: 8080 };
const HOST = "Host: plain.test:8080";
const CLOSE = "Connection: close";

const sent = (title: string, bytes: (canary: string) => string, check?: Attack["check"]): Attack => ({
  title,
  attempt: (canary) => raw(PLAIN, bytes(canary)),
  ...(check && { check }),
});

/** A request that is allowed but for these header lines. */
const withLines = (title: string, ...lines: readonly string[]): Attack =>
  sent(title, (canary) => request("GET", `/open/${canary}`, [HOST, CLOSE, ...lines]));

/** A POST to an allowed path, whose framing hides a second request. */
const hidden = (title: string, lines: readonly string[], body: (second: string) => string): Attack =>
  sent(
    title,
    (canary) => {
      const second = request("GET", `/shut/${canary}`, [HOST, "Content-Length: 7"], "");
      return request("POST", "/open/first", [HOST, ...lines], body(second));
    },
    ({ arrived, canary, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.end).not.toBe("open");
    },
  );

const path = (title: string, text: (canary: string) => string): Attack =>
  sent(title, (canary) => get("plain.test:8080", text(canary)));

attacked("a request to a host that is looked into", open, [
  sent("may be what is allowed", (canary) => get("plain.test:8080", `/open/${canary}?q=1`), allowed),
  sent(
    "may have a body",
    (canary) => request("POST", "/open/x", [HOST, CLOSE, `Content-Length: ${canary.length}`], canary),
    allowed,
  ),
  sent(
    "may have a body in chunks",
    (canary) =>
      request(
        "POST",
        "/open/x",
        [HOST, CLOSE, "Transfer-Encoding: chunked"],
        `${canary.length.toString(16)}\r\n${canary}\r\n0\r\n\r\n`,
      ),
    allowed,
  ),
  sent(
    "may expect to be asked for its body",
    (canary) =>
      request("POST", "/open/x", [HOST, CLOSE, "Expect: 100-continue", `Content-Length: ${canary.length}`], canary),
    ({ arrived, canary, outcome }) => {
      expect(arrived()).toContain(canary);
      expect(outcome.got).toContain(" 200 ");
    },
  ),

  // Host
  sent("for another host", (canary) => get("other.test", `/open/${canary}`)),
  sent("for another port", (canary) => get("plain.test:80", `/open/${canary}`)),
  sent("without a host", (canary) => request("GET", `/open/${canary}`, [CLOSE])),
  withLines("with two hosts", "Host: other.test"),
  withLines("with the same host twice", HOST),
  sent("with an empty host", (canary) => get("", `/open/${canary}`)),
  sent("with userinfo in its host", (canary) => get("x@plain.test:8080", `/open/${canary}`)),
  sent("with a NUL in its host", (canary) => get("plain.test\0other.test:8080", `/open/${canary}`)),
  sent("with a tab in its host", (canary) => get("plain.test:8080\tother.test", `/open/${canary}`)),
  sent("with two hosts in one line", (canary) => get("plain.test:8080, other.test", `/open/${canary}`)),
  sent("with an absolute URL of another host", (canary) => get("plain.test:8080", `http://other.test/open/${canary}`)),
  sent("with an absolute URL and another Host", (canary) => get("other.test", `http://plain.test:8080/open/${canary}`)),
  sent("of HTTP/1.0 without a host", (canary) => `GET /open/${canary} HTTP/1.0\r\n\r\n`),

  // Method
  sent(
    "with a method that is not allowed",
    (canary) => request("DELETE", `/open/${canary}`, [HOST, CLOSE]),
    (tried) => {
      refused(tried);
      expect(tried.outcome.got).toMatch(/^HTTP\/1\.1 403 [\s\S]*DELETE is not allowed/);
    },
  ),
  sent("with a method in small letters", (canary) => request("get", `/open/${canary}`, [HOST, CLOSE])),
  sent("with an unknown method", (canary) => request("FROB", `/open/${canary}`, [HOST, CLOSE])),
  sent("with TRACE", (canary) => request("TRACE", `/open/${canary}`, [HOST, CLOSE])),
  sent("with CONNECT", (canary) => request("CONNECT", "plain.test:8080", [HOST], canary)),
  sent("with a tab behind its method", (canary) => `GET\t/open/${canary} HTTP/1.1\r\n${HOST}\r\n\r\n`),
  ...["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"].map((name) =>
    withLines(`with ${name}`, `${name}: DELETE`),
  ),

  // Path
  path("to a path that is not allowed", (canary) => `/shut/${canary}`),
  path("to the folder of what is allowed below it", () => "/open"),
  path("with ..", (canary) => `/open/../shut/${canary}`),
  path("with escaped dots", (canary) => `/open/%2e%2e/shut/${canary}`),
  path("with one escaped dot", (canary) => `/open/.%2E/shut/${canary}`),
  path("with an escaped slash", (canary) => `/open/..%2fshut/${canary}`),
  path("with an escaped backslash", (canary) => `/open/..%5cshut/${canary}`),
  path("with a backslash", (canary) => `/open\\..\\shut\\${canary}`),
  path("with ..;", (canary) => `/open/..;/shut/${canary}`),
  path("with ..;x=1", (canary) => `/open/..;x=1/shut/${canary}`),
  path("with an empty segment", (canary) => `/open//../shut/${canary}`),
  path("with two slashes in front", (canary) => `//open/${canary}`),
  path("with the host in its path", (canary) => `//other.test/open/${canary}`),
  path("with .", (canary) => `/open/./${canary}`),
  path("with an escaped NUL", (canary) => `/open/${canary}%00.html`),
  path("with an allowed path in its query", (canary) => `/shut/${canary}?/open/x`),
  path("that begins with a query", (canary) => `?/open/${canary}`),
  path("with a fragment", (canary) => `/open/x#/../shut/${canary}`),
  path("in other letters", (canary) => `/OPEN/${canary}`),
  path("with an escaped letter", (canary) => `/%73hut/${canary}`),
  path("with bytes beyond ASCII", (canary) => `/open/${canary}\xef\xbc\x8f..`),
  path("with a space", (canary) => `/open/x /shut/${canary}`),
  path("without a slash", (canary) => `open/${canary}`),
  path("that is a star", () => "*"),

  // Framing
  hidden(
    "with a length and in chunks",
    ["Content-Length: 400", "Transfer-Encoding: chunked"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden(
    "in chunks and with a length",
    ["Transfer-Encoding: chunked", "Content-Length: 4"],
    (second) => `${second.length.toString(16)}\r\n${second}\r\n0\r\n\r\n`,
  ),
  hidden(
    "with a space in front of the colon",
    ["Content-Length: 400", "Transfer-Encoding : chunked"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden(
    "with an unknown encoding",
    ["Content-Length: 5", "Transfer-Encoding: xchunked"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden(
    "with two encodings",
    ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden("with chunked that is not last", ["Transfer-Encoding: chunked, identity"], (second) => `0\r\n\r\n${second}`),
  hidden(
    "with a folded encoding",
    ["Content-Length: 400", "Transfer-Encoding:\r\n chunked"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden(
    "with an encoding behind a bare LF",
    ["Content-Length: 400", "X: x\nTransfer-Encoding: chunked"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden(
    "with an encoding behind a bare CR",
    ["Content-Length: 400", "X: x\rTransfer-Encoding: chunked"],
    (second) => `0\r\n\r\n${second}`,
  ),
  hidden("with two lengths", ["Content-Length: 0", "Content-Length: 400"], (second) => second),
  hidden("with two lengths in one line", ["Content-Length: 0, 400"], (second) => second),
  hidden("with a negative length", ["Content-Length: -1"], (second) => second),
  hidden("with a sign in front of its length", ["Content-Length: +0"], (second) => second),
  hidden("with a hexadecimal length", ["Content-Length: 0x0"], (second) => second),
  hidden("with a length that overflows", ["Content-Length: 18446744073709551616"], (second) => second),
  hidden(
    "with a chunk that overflows",
    ["Transfer-Encoding: chunked"],
    (second) => `10000000000000000\r\n\r\n0\r\n\r\n${second}`,
  ),
  hidden("with a chunk without digits", ["Transfer-Encoding: chunked"], (second) => `\r\n\r\n${second}`),
  hidden("with a chunk ended by LF", ["Transfer-Encoding: chunked"], (second) => `1\nx\n0\n\n${second}`),
  sent(
    "with a second request behind it",
    (canary) =>
      `${request("POST", "/open/first", [HOST, "Content-Length: 0"])}${get("plain.test:8080", `/shut/${canary}`)}`,
    (tried) => {
      absent(tried);
      expect(tried.outcome.got).toMatch(/^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 403/);
    },
  ),
  sent(
    "with a chunk extension",
    (canary) =>
      request("POST", "/open/x", [HOST, CLOSE, "Transfer-Encoding: chunked"], `1;${canary}=1\r\nx\r\n0\r\n\r\n`),
    ({ arrived, canary }) => expect(arrived()).not.toContain(canary),
  ),
  sent(
    "with a trailer",
    (canary) =>
      request(
        "POST",
        "/open/x",
        [HOST, CLOSE, "Transfer-Encoding: chunked", "Trailer: Host"],
        `1\r\nx\r\n0\r\nHost: ${canary}\r\n\r\n`,
      ),
    ({ arrived, canary }) => expect(arrived()).not.toContain(canary),
  ),
  {
    title: "with a second one to another host on the same connection",
    attempt: (canary) => ({
      ...PLAIN,
      steps: [
        ["send", request("GET", "/open/first", [HOST])],
        ["until", "}"],
        ["send", get("other.test", `/open/${canary}`)],
      ],
    }),
    check: ({ arrived, canary, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.got).toMatch(/^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 4/);
    },
  },
  {
    title: "with a second one to another path on the same connection",
    attempt: (canary) => ({
      ...PLAIN,
      steps: [
        ["send", request("GET", "/open/first", [HOST])],
        ["until", "}"],
        ["send", get("plain.test:8080", `/shut/${canary}`)],
      ],
    }),
    check: ({ arrived, canary, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.got).toMatch(/^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 403/);
    },
  },

  // Syntax
  sent("with lines ended by LF", (canary) => `GET /open/${canary} HTTP/1.1\n${HOST}\n\n`),
  sent(
    "with a space in front of its first header",
    (canary) => `GET /open/${canary} HTTP/1.1\r\n X: 1\r\n${HOST}\r\n\r\n`,
  ),
  withLines("with a folded header", "X: 1\r\n 2"),
  withLines("with a NUL in a header", "X: a\0b"),
  withLines("with a space in front of a colon", "X : 1"),
  withLines("with a line that is no header", "no header at all"),
  withLines("with an empty name", ": x"),
  sent("of HTTP/0.9", (canary) => `GET /open/${canary}\r\n\r\n`),
  sent("of HTTP/2 by its number", (canary) => `GET /open/${canary} HTTP/2.0\r\n${HOST}\r\n\r\n`),
  sent("with the preface of HTTP/2", (canary) => `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${canary}`),
  {
    title: "with 10,000 headers",
    attempt: (canary) =>
      raw(PLAIN, request("GET", `/open/${canary}`, [HOST, CLOSE, ...Array<string>(10_000).fill("a: 1")])),
  },
  {
    title: "with a header of 1 MB",
    attempt: (canary) => ({
      ...PLAIN,
      steps: [
        ["send", `GET /open/${canary} HTTP/1.1\r\n${HOST}\r\nX: `],
        ["fill", "x".repeat(10_000), 100],
        ["send", "\r\n\r\n"],
      ],
    }),
  },
  {
    title: "with a path of 100,000 characters",
    attempt: (canary) => raw(PLAIN, get("plain.test:8080", `/open/${canary}/${"x".repeat(100_000)}`)),
  },

  // Other protocols on the same connection
  sent(
    "that upgrades to h2c: it goes on without that",
    (canary) =>
      request("GET", `/open/${canary}`, [
        HOST,
        "Connection: close, Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABk",
      ]),
    (tried) => {
      allowed(tried);
      absent(tried, "h2c");
      absent(tried, "AAMAAABk");
    },
  ),
  withLines(
    "that upgrades to a WebSocket",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
  ),
  sent("that is TLS", (canary) => `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${canary}`),

  // Headers that other programs act on
  ...["X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Host", "X-Host", "X-Forwarded-Server", "Forwarded"].map((name) =>
    sent(
      `with ${name}`,
      (canary) => request("GET", "/open/x", [HOST, CLOSE, `${name}: /${canary}`]),
      ({ arrived, canary }) => expect(arrived()).not.toContain(canary),
    ),
  ),
  ...["Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "TE"].map((name) =>
    sent(
      `with ${name}`,
      (canary) => request("GET", "/open/x", [HOST, CLOSE, `${name}: ${canary}`]),
      ({ arrived, canary }) => expect(arrived()).not.toContain(canary),
    ),
  ),
  sent(
    "that calls its Host a header of one connection",
    (canary) => request("GET", `/open/${canary}`, [HOST, "Connection: close, host"]),
    ({ arrived, canary }) => {
      const at = arrived().indexOf(canary);
      if (at >= 0)
        expect(
          arrived()
            .slice(at, at + 200)
            .toLowerCase(),
        ).toContain("host: plain.test:8080");
    },
  ),
  {
    title: "on a tunnel, for another host",
    attempt: (canary) => raw({ host: "front.test", port: 80 }, get("other.test", `/${canary}`)),
  },
  {
    title: "on a tunnel, for another host, behind empty lines",
    attempt: (canary) => raw({ host: "front.test", port: 80 }, `\r\n\n\r\n${get("other.test", `/${canary}`)}`),
  },
  {
    title: "on a tunnel, for another host, one byte at a time",
    attempt: (canary) => ({
      host: "front.test",
      port: 80,
      steps: [...get("other.test", `/${canary}`)].flatMap(
        (byte) =>
          [
            ["send", byte],
            ["pause", 2],
          ] as const,
      ),
    }),
  },
  {
    title: "on a tunnel, for another host, as the second",
    attempt: (canary) => ({
      host: "front.test",
      port: 80,
      steps: [
        ["send", request("GET", "/first", ["Host: front.test"])],
        ["until", "}"],
        ["send", get("other.test", `/${canary}`)],
      ],
    }),
    check: ({ arrived, canary, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.got).toMatch(/^HTTP\/1\.1 200 /);
    },
  },
  {
    title: "on a tunnel, for another host, in HTTP/1.0 without a version's dot",
    attempt: (canary) => raw({ host: "front.test", port: 80 }, `GET http://other.test/${canary}\r\n\r\n`),
  },
  {
    title: "on a tunnel, with TRACE, which would repeat what Corral adds",
    attempt: (canary) =>
      raw({ host: "front.test", port: 80 }, request("TRACE", `/${canary}`, ["Host: front.test", CLOSE])),
  },
  {
    title: "on a tunnel, with the preface of HTTP/2",
    attempt: (canary) => raw({ host: "front.test", port: 80 }, `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${canary}`),
  },
  {
    title: "on a tunnel, may name the host",
    attempt: (canary) => raw({ host: "front.test", port: 80 }, get("front.test", `/${canary}`)),
    check: allowed,
  },
]);
