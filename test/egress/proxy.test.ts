import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { sendRaw } from "./asked.ts";
import { cellSide, LOOPBACK } from "./cell-side.ts";
import { helloMessage, records, serverName } from "./hello.ts";
import { openedByTests } from "./opened.ts";
import { httpServer, tcpServer } from "./servers.ts";

const open = openedByTests();
const PROXY = [null, 3128] as const;

async function proxied() {
  const asked: IncomingMessage[] = [];
  const web = await open(
    httpServer((request, response) => {
      asked.push(request);
      response.end(request.headers.host);
    }),
  );
  const tcp = await open(tcpServer((socket) => socket.on("data", (piece) => socket.write(piece))));
  const allow = [
    { to: `*.example.test:${tcp.port}`, ...LOOPBACK },
    { to: "any.test:*", ...LOOPBACK },
    { to: `looked.test:${web.port}`, tls: false as const, paths: ["/public/**"], ...LOOPBACK },
    { to: "api.test:443", methods: ["GET"] },
  ];
  return { asked, web, tcp, cell: await open(cellSide({ network: { allow } })) };
}

describe("the proxy of a cell", () => {
  it("makes tunnels to hosts of wildcards and of every port", async () => {
    const { cell, tcp } = await proxied();
    for (const host of ["a.example.test", "A.B.Example.Test.", "any.test"]) {
      const client = await cell.connect(...PROXY);
      client.write(
        `CONNECT ${host}:${tcp.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic YTpi\r\n\r\n\x01early`,
      );
      let got = "";
      client.on("data", (piece) => {
        got += piece;
      });
      await expect.poll(() => got).toBe("HTTP/1.1 200 Connection established\r\n\r\n\x01early");
      client.write("late");
      await expect.poll(() => got).toMatch(/earlylate$/);
      client.destroy();
      await once(client, "close");
    }
    expect(cell.lookups).toEqual(["a.example.test", "a.b.example.test", "any.test"]);
  });

  it.each<readonly [string, RegExp]>([
    ["other.test:443", /403 [\s\S]*other.test:443 is not allowed/],
    ["example.test:TCP", /403/],
    ["a.example.test:1", /403/],
    ["a.example.test.evil.test:TCP", /403/],
    ["api.test:443", /403 [\s\S]*Use http:\/\/api.test\//],
    ["user@any.test:TCP", /400/],
    ["any.test", /400/],
    ["any.test:0", /400/],
    ["any.test:99999", /400/],
    ["any.test:TCP/x", /400/],
    ["any.test\0.evil.test:TCP", /400/],
    ["any.test%00:TCP", /400/],
    ["[::1]:TCP", /403/],
    ["[any.test]:TCP", /400/],
    ["2130706433:TCP", /400/],
    ["0x7f.1:TCP", /400/],
    ["127.1:TCP", /400/],
    ["127.0.0.1:TCP", /403/],
    ["http://any.test:TCP", /400/],
  ])("refuses CONNECT %s without a lookup", async (authority, answer) => {
    const { cell, tcp } = await proxied();
    const line = `CONNECT ${authority.replace("TCP", String(tcp.port))} HTTP/1.1\r\nHost: any.test:${tcp.port}\r\n\r\n`;
    expect(await sendRaw(cell, PROXY, line)).toMatch(answer);
    expect(cell.lookups).toEqual([]);
    expect(tcp.connections()).toBe(0);
    expect(cell.denied).toHaveLength(1);
  });

  it("judges TLS and HTTP within a tunnel as everywhere", async () => {
    const { cell, web, tcp, asked } = await proxied();
    const connect = (port: number): string => `CONNECT any.test:${port} HTTP/1.1\r\n\r\n`;
    const hello = records(helloMessage([serverName("other.test")]));
    expect(await sendRaw(cell, PROXY, Buffer.concat([Buffer.from(connect(tcp.port)), hello]))).toMatch(
      /established\r\n\r\n.{6}p$/s,
    );
    const inner = `GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n`;
    expect(await sendRaw(cell, PROXY, connect(web.port) + inner)).toMatch(
      /200 Connection established\r\n\r\nHTTP\/1.1 403/,
    );
    expect(asked).toHaveLength(0);
  });

  it("answers requests with a whole URL, each for its own host", async () => {
    const { cell, web, asked } = await proxied();
    const get = (url: string, host: string, more = "") => `GET ${url} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
    const [any, looked] = [`any.test:${web.port}`, `looked.test:${web.port}`];
    const answers = await sendRaw(
      cell,
      PROXY,
      get(`http://${any}/1`, any, "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic YTpi\r\n") +
        get(`http://${looked}/public/2`, looked) +
        get(`http://${looked}/secret`, looked) +
        get(`http://other.test/`, "other.test") +
        get(`http://${any}/1`, "other.test") +
        get(`http://${any}?x`, any, "Connection: close\r\n"),
    );
    expect(answers.match(/HTTP\/1.1 \d+/g)?.map((line) => line.slice(9))).toEqual([
      "200",
      "200",
      "403",
      "403",
      "403",
      "200",
    ]);
    expect(asked.map(({ headers, url }) => `${headers.host}${url}`)).toEqual([
      `${any}/1`,
      `${looked}/public/2`,
      `${any}/?x`,
    ]);
    expect(asked.flatMap(({ rawHeaders }) => rawHeaders.filter((name) => /^proxy/i.test(name)))).toEqual([]);
  });

  it.each(["/path", "https://any.test/", "http://user@any.test/", "http:///", "*"])("refuses %s", async (url) => {
    const { cell } = await proxied();
    expect(await sendRaw(cell, PROXY, `GET ${url} HTTP/1.1\r\nHost: any.test\r\nConnection: close\r\n\r\n`)).toMatch(
      /^HTTP\/1.1 400/,
    );
    expect(cell.lookups).toEqual([]);
  });

  it("answers CONNECT only in its turn", async () => {
    const { cell, web, tcp } = await proxied();
    const any = `any.test:${web.port}`;
    const answers = await sendRaw(
      cell,
      PROXY,
      `GET http://${any}/1 HTTP/1.1\r\nHost: ${any}\r\n\r\nCONNECT any.test:${tcp.port} HTTP/1.1\r\n\r\n`,
    );
    expect(answers).not.toContain("Connection established");
  });
});
