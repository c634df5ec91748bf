import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import type { NetworkRule } from "../../src/sandbox/network/rule.ts";
import { ask, sendRaw } from "./asked.ts";
import { cellSide, LOOPBACK } from "./cell-side.ts";
import { openedByTests } from "./opened.ts";
import { httpServer, tcpServer } from "./servers.ts";

const open = openedByTests();

/** A host that is looked into, `api.test`, and what it was asked. */
async function looked(rule: Partial<NetworkRule> = {}) {
  const asked: IncomingMessage[] = [];
  const bodies: string[] = [];
  const server = await open(
    httpServer(async (request, response) => {
      asked.push(request);
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece as Buffer);
      bodies.push(Buffer.concat(pieces).toString());
      response.end("answer");
    }),
  );
  const network = {
    allow: [{ to: `api.test:${server.port}`, tls: false, ...LOOPBACK, ...rule } satisfies NetworkRule],
  };
  const cell = await open(cellSide({ network }));
  const place = ["api.test", server.port] as const;
  return { asked, bodies, cell, place, host: `api.test:${server.port}`, server };
}

const BOUND = { methods: ["GET", "POST"], paths: ["/public/**"] };

describe("a request that could be read in two ways never reaches its host:", () => {
  it.each<readonly [string, string, RegExp]>([
    ["no Host", "GET /public/a HTTP/1.1\r\n\r\n", /^HTTP\/1.1 400/],
    ["two Hosts", "GET /public/a HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n", /^HTTP\/1.1 400/],
    ["another Host", "GET /public/a HTTP/1.1\r\nHost: other.test\r\n\r\n", /^HTTP\/1.1 403/],
    ["another port in Host", "GET /public/a HTTP/1.1\r\nHost: api.test:1\r\n\r\n", /^HTTP\/1.1 403/],
    ["no port in Host", "GET /public/a HTTP/1.1\r\nHost: api.test\r\n\r\n", /^HTTP\/1.1 403/],
    ["a user in Host", "GET /public/a HTTP/1.1\r\nHost: user@HOST\r\n\r\n", /^HTTP\/1.1 400/],
    ["a list in Host", "GET /public/a HTTP/1.1\r\nHost: HOST, other.test\r\n\r\n", /^HTTP\/1.1 400/],
    ["NUL in Host", "GET /public/a HTTP/1.1\r\nHost: HOST\0.other.test\r\n\r\n", /^HTTP\/1.1 400/],
    ["an escape in Host", "GET /public/a HTTP/1.1\r\nHost: api%2etest\r\n\r\n", /^HTTP\/1.1 400/],
    ["a space before a colon", "GET /public/a HTTP/1.1\r\nHost: HOST\r\nX-A : b\r\n\r\n", /^HTTP\/1.1 400/],
    ["another host in the URL", "GET http://other.test/public/a HTTP/1.1\r\nHost: HOST\r\n\r\n", /^HTTP\/1.1 403/],
    ["a user in the URL", "GET http://a@HOST/public/a HTTP/1.1\r\nHost: HOST\r\n\r\n", /^HTTP\/1.1 400/],
    ["an https URL", "GET https://HOST/public/a HTTP/1.1\r\nHost: HOST\r\n\r\n", /^HTTP\/1.1 400/],
    ["a fragment", "GET /public/a#/../b HTTP/1.1\r\nHost: HOST\r\n\r\n", /^HTTP\/1.1 400/],
    [
      "length and coding",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    [
      "two lengths",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\naaaa",
      /^HTTP\/1.1 400/,
    ],
    [
      "the same length twice",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\naaaa",
      /^HTTP\/1.1 400/,
    ],
    [
      "a length with a sign",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nContent-Length: +4\r\n\r\naaaa",
      /^HTTP\/1.1 400/,
    ],
    [
      "another coding",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    [
      "two codings",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    [
      "a hidden coding",
      "POST /public/a HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    [
      "chunks in HTTP/1.0",
      "POST /public/a HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    ["lines without CR", "GET /public/a HTTP/1.1\nHost: HOST\n\n", /^HTTP\/1.1 400/],
    [
      "a folded line",
      "GET /public/a HTTP/1.1\r\nHost: HOST\r\nX-A: b\r\n\tHost: other.test\r\nHost: c\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    ["TRACE", "TRACE /public/a HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n", /^HTTP\/1.1 403/],
    ["CONNECT", "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n", /^$/],
    [
      "an upgrade",
      "GET /public/a HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
      /^HTTP\/1.1 400/,
    ],
    ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", /HTTP\/2 without TLS is refused/],
    ["HTTP/0.9", "GET /public/a\r\n\r\n", /^HTTP\/1.1 400/],
    ["long headers", `GET /public/a HTTP/1.1\r\nHost: HOST\r\nX-A: ${"a".repeat(40_000)}\r\n\r\n`, /^HTTP\/1.1 429/],
    ["TLS", "\x16\x03\x01\x00\x05hello", /^.{6}1$/s],
    ...["_method=DELETE", "a=1&_METHOD=PUT", "%5fmethod=DELETE"].map((query): [string, string, RegExp] => [
      `another method in its query (${query})`,
      `GET /public/a?${query} HTTP/1.1\r\nHost: HOST\r\n\r\n`,
      /^HTTP\/1.1 400/,
    ]),
    ...["X-HTTP-Method-Override: DELETE", "X_HTTP_Method: PUT", "X-Original-URL: /admin", "X-Rewrite-URL: /admin"].map(
      (line): [string, string, RegExp] => [
        line,
        `GET /public/a HTTP/1.1\r\nHost: HOST\r\n${line}\r\n\r\n`,
        /^HTTP\/1.1 400/,
      ],
    ),
    ...[
      "/public/../admin",
      "/public/%2e%2e/admin",
      "/public/..%2fadmin",
      "/public/a%5c..%5cadmin",
      "/public//a",
      "/public/a%00",
      "/public/..;/admin",
      "/public/.%2E/x",
      "//public/a",
      "/public/a\\..\\b",
    ].map((path): [string, string, RegExp] => [
      path,
      `GET ${path} HTTP/1.1\r\nHost: HOST\r\n\r\n`,
      /^HTTP\/1.1 40[03]/,
    ]),
  ])("%s", async (_, bytes, answer) => {
    const { asked, cell, place, host } = await looked(BOUND);
    const answered = await sendRaw(
      cell,
      place,
      bytes.replaceAll("HOST", host).replace(/^(GET.*\r\n(?:.*\r\n)*)\r\n$/, "$1Connection: close\r\n\r\n"),
    );
    expect(answered).toMatch(answer);
    expect(asked).toHaveLength(0);
    expect(cell.denied).toHaveLength(1);
  });
});

describe("a request that is allowed", () => {
  it("is no TRACE, whatever the rule says", async () => {
    const { asked, cell, place } = await looked();
    expect(await ask(cell, place, { method: "TRACE" })).toMatchObject({ status: 403 });
    expect(asked).toHaveLength(0);
  });

  it("with a body is the last one on its connection, also if the host keeps it open", async () => {
    const server = await open(
      tcpServer((socket) => socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))),
    );
    const network = { allow: [{ to: `api.test:${server.port}`, tls: false as const, ...LOOPBACK }] };
    const cell = await open(cellSide({ network }));
    const head = `Host: api.test:${server.port}\r\n`;
    const sent = `POST / HTTP/1.1\r\n${head}Content-Length: 1\r\n\r\nxGET / HTTP/1.1\r\n${head}Connection: close\r\n\r\n`;
    expect((await sendRaw(cell, ["api.test", server.port], sent)).match(/200 OK/g)).toHaveLength(2);
    expect(server.connections()).toBe(2);
  });

  it("takes no headers of other proxies and of its connection along", async () => {
    const { asked, cell, place } = await looked(BOUND);
    const headers = {
      "x-forwarded-host": "other.test",
      x_forwarded_host: "other.test",
      forwarded: "host=other.test",
      "proxy-authorization": "Basic aaaa",
      te: "trailers",
      connection: "x-hop",
      "x-hop": "1",
      "keep-alive": "timeout=1",
      "upgrade-insecure-requests": "1",
      accept: "text/plain",
    };
    expect(await ask(cell, place, { path: "/public/a", headers })).toMatchObject({ status: 200, body: "answer" });
    expect(asked[0]?.headers).toEqual({ host: `api.test:${place[1]}`, accept: "text/plain", connection: "keep-alive" });
  });

  it("with a body is the last one on its connection to the host, also if the host would go on", async () => {
    const { server, cell, place, bodies, asked } = await looked(BOUND);
    const smuggled = `GET /admin HTTP/1.1\r\nHost: ${place.join(":")}\r\n\r\n`;
    for (const method of ["GET", "POST"])
      expect(
        await ask(cell, place, {
          path: "/public/a",
          method,
          body: smuggled,
          headers: { "content-length": smuggled.length },
        }),
      ).toMatchObject({ status: 200 });
    expect(bodies).toEqual([smuggled, smuggled]);
    expect(asked.map(({ url }) => url)).toEqual(["/public/a", "/public/a"]);
    expect(asked[0]?.headers.connection).toBe("close");
    expect(server.connections()).toBe(2);
  });

  it("may send others ahead of its answer, each of which is judged", async () => {
    const { cell, place, host, asked, server } = await looked(BOUND);
    const get = (path: string, more = "") => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
    const answers = await sendRaw(
      cell,
      place,
      get("/public/1") + get("/admin") + get("/public/2", "Connection: close\r\n"),
    );
    expect(answers.match(/HTTP\/1.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 403", "HTTP/1.1 200"]);
    expect(asked.map(({ url }) => url)).toEqual(["/public/1", "/public/2"]);
    expect(server.connections()).toBe(1);
    const many = await sendRaw(cell, place, get("/public/1").repeat(200));
    expect(many).toBe("");
    expect(cell.denied.map(({ reason }) => reason)).toEqual(["path", "limit"]);
  });

  it("that waits before its body is told to go on only if it is allowed", async () => {
    const { cell, place, host, bodies } = await looked(BOUND);
    const post = (path: string, body: string) =>
      `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 4\r\n\r\n${body}`;
    expect(await sendRaw(cell, place, post("/public/a", "body"))).toMatch(
      /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200/,
    );
    expect(await sendRaw(cell, place, post("/admin", ""))).toMatch(/^HTTP\/1.1 403/);
    expect(bodies).toEqual(["body"]);
  });
});

describe("an answer", () => {
  it("has no headers that lead to TLS, and names hosts as the cell reaches them", async () => {
    const server = await open(
      tcpServer((socket) => {
        socket.end(
          "HTTP/1.1 302 Found\r\nStrict-Transport-Security: max-age=1\r\nAlt-Svc: h3=1\r\nConnection: x-hop\r\nX-Hop: 1\r\n" +
            "Location: https://looked.test/a?b=https://other.test/\r\nLink: <https://tunnel.test/1>; rel=next\r\nContent-Length: 0\r\n\r\n",
        );
      }),
    );
    const allow = [
      { to: `api.test:${server.port}`, tls: false as const, ...LOOPBACK },
      { to: "looked.test:443", methods: ["GET"] },
      { to: "tunnel.test:443" },
    ];
    const cell = await open(cellSide({ network: { allow } }));
    const { headers } = await ask(cell, ["api.test", server.port]);
    expect(headers).toMatchObject({
      location: "http://looked.test/a?b=https://other.test/",
      link: "<https://tunnel.test/1>; rel=next",
    });
    expect(Object.keys(headers).filter((name) => /strict|alt-svc|x-hop/.test(name))).toEqual([]);
  });

  it.each([
    ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk", 502],
    ["HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 502],
    ["HTTP/1.1 200 OK\r\nBad\x01Name: a\r\n\r\n", 502],
    ["HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 502],
    ["nonsense", 502],
    ["", 502],
    ["HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", 502],
    ["HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200],
  ])("%j is passed on only if it can be read in one way", async (bytes, status) => {
    const server = await open(tcpServer((socket) => socket.once("data", () => socket.end(bytes))));
    const allow = [{ to: `api.test:${server.port}`, tls: false as const, ...LOOPBACK }];
    const cell = await open(cellSide({ network: { allow } }));
    expect(await ask(cell, ["api.test", server.port])).toMatchObject({ status });
  });
});
