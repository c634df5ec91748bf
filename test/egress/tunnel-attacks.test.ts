import type { Socket } from "node:net";
import { buffer, text } from "node:stream/consumers";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { describe, expect, it } from "vitest";
import { sendRaw } from "./asked.ts";
import { cellSide, LOOPBACK } from "./cell-side.ts";
import { helloMessage, records, serverName } from "./hello.ts";
import { openedByTests } from "./opened.ts";
import { httpServer, identityFor, tcpServer, tlsServer } from "./servers.ts";

const open = openedByTests();

const ALERT = (number: number): Buffer => Buffer.from([21, 3, 3, 0, 2, 2, number]);
const RETRY = Buffer.concat([
  Buffer.from([22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3]),
  Buffer.from("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c", "hex"),
  Buffer.from([0, 0x13, 0x01, 0]),
]);

/** A host `a.test` that keeps what it gets, and a cell with a tunnel to it. */
async function tunnelTo(onConnection: (socket: Socket) => void = () => {}) {
  const got: Buffer[] = [];
  const server = await open(
    tcpServer((socket) => {
      socket.on("data", (piece) => got.push(piece));
      onConnection(socket);
    }),
  );
  const cell = await open(cellSide({ network: { allow: [{ to: `a.test:${server.port}`, ...LOOPBACK }] } }));
  return { server, cell, place: ["a.test", server.port] as const, got: () => Buffer.concat(got) };
}

function tls(port: number, options: ConnectionOptions): Promise<string> {
  return new Promise((resolve) => {
    const socket = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false, ...options });
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.once("secureConnect", () => resolve(`connected ${socket.alpnProtocol}`));
  });
}

describe("a TLS client of a tunnel", () => {
  it("reaches the host that it names, and speaks what both know", async () => {
    const server = await open(tlsServer({ ...identityFor("a.test"), ALPNProtocols: ["h2"] }, () => {}));
    const cell = await open(cellSide({ network: { allow: [{ to: `a.test:${server.port}`, ...LOOPBACK }] } }));
    const port = await cell.port("a.test", server.port);
    expect(await tls(port, { servername: "a.test", ALPNProtocols: ["h2"] })).toBe("connected h2");
    expect(await tls(port, { servername: "A.TEST", maxVersion: "TLSv1.2" })).toBe("connected false");
    expect(await tls(port, { servername: "b.test" })).toBe("ERR_SSL_TLSV1_UNRECOGNIZED_NAME");
    expect(await tls(port, { servername: "" })).toBe("ERR_SSL_TLSV13_ALERT_MISSING_EXTENSION");
    expect(cell.denied).toMatchObject([{ reason: "name", count: 1 }]);
    expect(cell.egress.report().denied).toMatchObject([{ reason: "name", count: 2 }]);
    expect(server.connections()).toBe(2);
  });

  it("names no host if the rule has an address", async () => {
    const server = await open(tlsServer(identityFor("127.0.0.1"), () => {}));
    const cell = await open(cellSide({ network: { allow: [{ to: `127.0.0.1:${server.port}`, ...LOOPBACK }] } }));
    const port = await cell.port("127.0.0.1", server.port);
    expect(await tls(port, {})).toBe("connected false");
    expect(await tls(port, { servername: "a.test" })).toBe("ERR_SSL_TLSV1_UNRECOGNIZED_NAME");
    expect(cell.lookups).toEqual([]);
  });

  it.each<readonly [string, Buffer, number]>([
    ["another host", records(helloMessage([serverName("b.test")])), 112],
    ["a host below", records(helloMessage([serverName("x.a.test")])), 112],
    ["the host with a dot", records(helloMessage([serverName("a.test.")])), 112],
    ["another host, in small records", records(helloMessage([serverName("b.test")]), 3), 112],
    ["no host", records(helloMessage([])), 109],
    ["maybe another host (ECH)", records(helloMessage([serverName("a.test"), [0xfe0d, Buffer.alloc(9)]])), 49],
    ["two hosts", records(helloMessage([serverName("a.test"), serverName("b.test")])), 50],
    [
      "the host, with something behind",
      records(Buffer.concat([helloMessage([serverName("a.test")]), helloMessage([])])),
      50,
    ],
  ])("that names %s is sent an alert, and the host nothing", async (_, bytes, alert) => {
    const { cell, place, got } = await tunnelTo();
    expect(Buffer.from(await sendRaw(cell, place, bytes), "latin1")).toEqual(ALERT(alert));
    expect(got()).toHaveLength(0);
  });

  it("is held byte by byte until its name is known", async () => {
    const { cell, place, got } = await tunnelTo();
    const client = await cell.connect(...place);
    const hello = records(helloMessage([serverName("a.test")]), 20);
    for (const byte of hello.subarray(0, -1)) {
      client.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    await new Promise((done) => setTimeout(done, 100));
    expect(got()).toHaveLength(0);
    client.write(hello.subarray(-1));
    await expect.poll(got).toEqual(hello);
  });

  it("names the host in its second hello too, if the server asks for one", async () => {
    const first = records(helloMessage([serverName("a.test")]));
    const early = Buffer.from([20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2, 9, 9]);
    for (const name of ["a.test", "b.test"]) {
      const { cell, place, got } = await tunnelTo((socket) => socket.once("data", () => socket.write(RETRY)));
      const second = records(helloMessage([serverName(name)]));
      const client = await cell.connect(...place);
      client.write(Buffer.concat([first, early, second]));
      if (name === "a.test") await expect.poll(got).toEqual(Buffer.concat([first, early, second]));
      else {
        expect(await buffer(client)).toEqual(Buffer.concat([RETRY, ALERT(112)]));
        expect(got()).toEqual(first);
      }
    }
  });
});

describe("a client of a tunnel", () => {
  it("that speaks HTTP has each of its requests judged", async () => {
    const urls: string[] = [];
    const server = await open(
      httpServer((request, response) => {
        urls.push(`${request.headers.host}${request.url}`);
        response.end("ok");
      }),
    );
    const cell = await open(cellSide({ network: { allow: [{ to: `a.test:${server.port}`, ...LOOPBACK }] } }));
    const place = ["a.test", server.port] as const;
    const get = (host: string, path: string, more = "") => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
    const host = place.join(":");
    const answers = await sendRaw(
      cell,
      place,
      get(host, "/a%2fb/../c") + get("b.test", "/") + get(host, "/2", "Connection: close\r\n"),
    );
    expect(answers.match(/HTTP\/1.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 403", "HTTP/1.1 200"]);
    expect(urls).toEqual([`${host}/a%2fb/../c`, `${host}/2`]);
  });

  it.each([
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["GET /\r\n"],
    ["PROXY TCP4 1.2.3.4 1.2.3.4 1 80\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n"],
    ["\r\nG3T / HTTP/1.1\r\nHost: b.test\r\n\r\n"],
    ["\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"],
  ])("that sends %j reaches nothing", async (bytes) => {
    const { cell, place, got } = await tunnelTo();
    await sendRaw(cell, place, bytes);
    expect(got()).toHaveLength(0);
    expect(cell.denied).toMatchObject([{ reason: "malformed" }]);
  });

  it("may speak another protocol, without a byte lost", async () => {
    const { cell, place } = await tunnelTo((socket) => socket.pipe(socket));
    const sent = Buffer.alloc(3_000_000, "\x01binary\0");
    const client = await cell.connect(...place);
    client.end(sent);
    expect((await buffer(client)).equals(sent)).toBe(true);
  });

  it("that does not read stops the host from sending", async () => {
    let written = 0;
    const { cell, place } = await tunnelTo((socket) => {
      const piece = Buffer.alloc(65_536);
      const more = (): void => {
        while (written < 100_000_000 && socket.write(piece)) written += piece.length;
      };
      socket.on("drain", more);
      more();
    });
    const client = await cell.connect(...place);
    client.pause();
    let before = -1;
    await expect
      .poll(
        () => {
          const same = written === before;
          before = written;
          return same && written > 0;
        },
        { interval: 300 },
      )
      .toBe(true);
    expect(written).toBeLessThan(30_000_000);
  });
});

describe("a host of a tunnel", () => {
  it("that does not answer closes the connection, and is told", async () => {
    const gone = await tcpServer(() => {});
    await gone[Symbol.asyncDispose]();
    const cell = await open(cellSide({ network: { allow: [{ to: `a.test:${gone.port}`, ...LOOPBACK }] } }));
    expect(await sendRaw(cell, ["a.test", gone.port], "\x01")).toBe("");
    expect(cell.denied).toMatchObject([{ reason: "unreachable" }]);
  });

  it("is reached at the next address if one does not answer", async () => {
    const server = await open(tcpServer((socket) => socket.end("hello")));
    const network = { allow: [{ to: `a.test:${server.port}`, ...LOOPBACK }] };
    const cell = await open(cellSide({ network, resolve: async () => ["::1", "127.0.0.9", "127.0.0.1"] }));
    expect(await text(await cell.connect("a.test", server.port))).toBe("hello");
  });

  it("is not dialled at an address that the rule does not name, whatever the name leads to next", async () => {
    const server = await open(tcpServer(() => {}));
    const answers = [["10.0.0.1"], ["169.254.169.254"], ["::ffff:10.0.0.1"]];
    const network = { allow: [{ to: `a.test:${server.port}`, addresses: ["127.0.0.0/8"] }] };
    const cell = await open(cellSide({ network, resolve: async () => answers.shift() ?? [] }));
    for (let round = 0; round < 4; round += 1) expect(await sendRaw(cell, ["a.test", server.port], "\x01")).toBe("");
    expect(cell.denied.map(({ reason }) => reason)).toEqual(["address", "unresolved"]);
    expect(server.connections()).toBe(0);
  });
});
