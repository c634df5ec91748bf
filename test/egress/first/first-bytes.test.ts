import { Duplex } from "node:stream";
import { connect } from "node:tls";
import { describe, expect, it } from "vitest";
import { readClientHello, readFirstBytes } from "../../../src/egress/first/client-hello.ts";
import { helloMessage, records, serverName } from "../hello.ts";

const MAX = 65_536;
const ALPN = [16, Buffer.from("000c02683208687474702f312e31", "hex")] as const;

function read(bytes: Buffer) {
  return readClientHello(bytes, MAX);
}

/** The hello that Node's own client sends. */
function nodeHello(servername: string): Promise<Buffer> {
  return new Promise((resolve) => {
    const wire = new Duplex({ read() {}, write: (piece: Buffer) => resolve(piece) });
    connect({ socket: wire, servername }).on("error", () => {});
  });
}

describe("a ClientHello", () => {
  it("of Node's client has its server name, however it is cut", async () => {
    const whole = await nodeHello("example.org");
    for (let length = 0; length < whole.length; length += 1) expect(read(whole.subarray(0, length)).kind).toBe("more");
    expect(read(whole)).toEqual({ kind: "hello", serverName: "example.org", encrypted: false, length: whole.length });
  });

  it("is read across records", () => {
    const message = helloMessage([ALPN, serverName("Example.org")]);
    const cut = records(message, 5);
    expect(read(cut)).toMatchObject({ kind: "hello", serverName: "Example.org", length: cut.length });
    expect(read(Buffer.concat([cut, Buffer.from("rest")]))).toMatchObject({ kind: "hello", length: cut.length });
  });

  it.each([0xfe0d, 0xffce])("that may hide a name says so (extension %d)", (type) => {
    const bytes = records(helloMessage([serverName("example.org"), [type, Buffer.alloc(40)]]));
    expect(read(bytes)).toMatchObject({ kind: "hello", encrypted: true });
  });

  const message = helloMessage([serverName("example.org")]);
  const name = serverName("example.org")[1];
  const two = Buffer.concat([Buffer.from([0, 30]), name.subarray(2), name.subarray(2)]);
  it.each<readonly [string, Buffer]>([
    ["two extensions for a name", records(helloMessage([serverName("a.test"), serverName("b.test")]))],
    ["two names in one extension", records(helloMessage([[0, two]]))],
    [
      "a name of another kind",
      records(helloMessage([[0, Buffer.concat([name.subarray(0, 2), Buffer.from([1]), name.subarray(3)])]])),
    ],
    ["an empty name", records(helloMessage([serverName("")]))],
    ["a name with NUL", records(helloMessage([serverName("example.org\0.evil.test")]))],
    [
      "a length that is too long",
      records(Buffer.concat([message.subarray(0, 45), Buffer.from([0xff]), message.subarray(46)])),
    ],
    [
      "bytes behind its extensions",
      records(Buffer.concat([Buffer.from([1, 0, 0, message.length - 3]), message.subarray(4), Buffer.from([0])])),
    ],
    ["a second message in its record", records(Buffer.concat([message, message]))],
    ["another message first", records(Buffer.concat([Buffer.from([2]), message.subarray(1)]))],
    ["an empty record", Buffer.concat([Buffer.from([22, 3, 1, 0, 0]), records(message)])],
    ["another record in between", Buffer.concat([records(message.subarray(0, 9)), Buffer.from([20, 3, 1, 0, 1, 1])])],
    ["too many records", records(helloMessage([serverName("example.org"), [21, Buffer.alloc(80)]]), 1)],
    ["more bytes than a hello has", Buffer.from([22, 3, 1, 0, 4, 1, 1, 0, 0])],
  ])("with %s is malformed", (_, bytes) => {
    expect(read(bytes).kind).toBe("malformed");
  });
});

describe("the first bytes of a client", () => {
  it.each([
    ["GET / HTTP/1.1\r\n", "http"],
    ["\r\n\r\nGET / HTTP/1.1\r\n", "http"],
    ["G3T\t/\tHTTP/1.1\n", "http"],
    ["get / http/1.1\r\n", "http"],
    ["GET http://other.test/ HTTP/1.0\n", "http"],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"],
    ["GET /index\r\n", "malformed"],
    ["PROXY TCP4 1.2.3.4 1.2.3.4 1 80\r\nGET / HTTP/1.1\r\n", "malformed"],
    ["\r\n\r\n\0\r\nQUIT\n", "malformed"],
    ["\x80\x2e\x01\x03\x01\x00", "malformed"],
    ["GET / HTT", "more"],
    ["GET /\0", "more"],
    [" ", "more"],
    ["SSH-2.0-OpenSSH_9\r\n", "other"],
    ["EHLO example.org\r\n", "other"],
    ["*1\r\n", "other"],
    ["0032git-upload-pack /p.git\0host=a\0", "other"],
    ["AMQP\0\0\x09\x01", "other"],
    ["0\x0c\x02\x01\x01", "other"],
    ["\0\0\0\x08\x04\xd2\x16\x2f", "other"],
    ['{"id":1}', "other"],
    ["A".repeat(20_000), "malformed"],
    [" ".repeat(20_000), "malformed"],
  ])("%j are %s", (text, kind) => {
    expect(readFirstBytes(Buffer.from(text, "latin1"), MAX, 16_384).kind).toBe(kind);
  });
});
