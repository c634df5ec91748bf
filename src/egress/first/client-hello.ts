/** The random of a ServerHello that asks for a second ClientHello (RFC 8446 section 4.1.3). */
const RETRY = Buffer.from("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c", "hex");
const RANDOM_AT = 5 + 4 + 2;

/** Looks at the first bytes of a TLS server: only a retry makes the client send a second hello, with a name of its own. */
export class ServerStart {
  #bytes = Buffer.alloc(0);

  /** Null until enough bytes have come. */
  feed(chunk: Buffer): "retry" | "other" | null {
    this.#bytes = Buffer.concat([this.#bytes, chunk.subarray(0, RANDOM_AT + RETRY.length)]);
    if (this.#bytes[0] !== undefined && this.#bytes[0] !== HANDSHAKE_RECORD) return "other";
    if (this.#bytes.length < RANDOM_AT + RETRY.length) return null;
    return this.#bytes.subarray(RANDOM_AT, RANDOM_AT + RETRY.length).equals(RETRY) ? "retry" : "other";
  }
}

const [CHANGE_CIPHER, APPLICATION_DATA] = [20, 23];

/** How many bytes of records a client may send before its second hello: early data, which the server skips. */
export function beforeSecondHello(bytes: Buffer): number {
  let at = 0;
  while (at + 5 <= bytes.length && (bytes[at] === CHANGE_CIPHER || bytes[at] === APPLICATION_DATA)) {
    const next = at + 5 + bytes.readUInt16BE(at + 3);
    if (next > bytes.length) break;
    at = next;
  }
  return at;
}

/** What Corral reads of a TLS ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3). */
export type ClientHello =
  /** At least this many bytes are needed before reading again. */
  | { readonly kind: "more"; readonly bytes: number }
  | {
      readonly kind: "hello";
      /** As the client sent it; null if it sent none. */
      readonly serverName: string | null;
      /** True if it may hide another name (Encrypted Client Hello, or its predecessor). */
      readonly encrypted: boolean;
      /** Where the records of the hello end. */
      readonly length: number;
    }
  | { readonly kind: "malformed"; readonly why: string };

export const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const MAX_RECORD = 16_384;
/** Clients send one or two. All of them are read again when bytes arrive. */
const MAX_RECORDS = 64;
const SERVER_NAME = 0;
const ENCRYPTED = [0xfe0d, 0xffce];

/** Reads a ClientHello that may be cut into records anywhere, from `bytes` that have arrived so far. */
export function readClientHello(bytes: Buffer, maxBytes: number): ClientHello {
  const parts: Buffer[] = [];
  let [at, have, need] = [0, 0, 4];
  while (have < need) {
    if (parts.length === MAX_RECORDS) return malformed("the ClientHello is cut into too many records");
    if (bytes.length < at + 5) return more(at + 5, maxBytes);
    const [type, major] = [bytes[at], bytes[at + 1]];
    const length = bytes.readUInt16BE(at + 3);
    if (type !== HANDSHAKE_RECORD || major !== 3) return malformed("it is no TLS handshake");
    if (length === 0 || length > MAX_RECORD) return malformed("a record has a wrong length");
    if (bytes.length < at + 5 + length) return more(at + 5 + length, maxBytes);
    parts.push(bytes.subarray(at + 5, at + 5 + length));
    at += 5 + length;
    have += length;
    if (need === 4 && have >= 4) {
      const head = Buffer.concat(parts);
      if (head[0] !== CLIENT_HELLO) return malformed("it does not begin with a ClientHello");
      need = 4 + head.readUIntBE(1, 3);
      if (need > maxBytes) return malformed("the ClientHello is too long");
    }
  }
  // Servers differ in what they do with a second message here.
  if (have > need) return malformed("something follows the ClientHello in its record");
  return readBody(Buffer.concat(parts).subarray(4), at);
}

function readBody(body: Buffer, length: number): ClientHello {
  try {
    const reader = new Reader(body);
    reader.take(2 + 32);
    reader.block(1);
    const ciphers = reader.block(2);
    if (ciphers.length === 0 || ciphers.length % 2 === 1) return malformed("its list of ciphers is wrong");
    if (reader.block(1).length === 0) return malformed("its list of compressions is empty");
    const extensions = reader.left === 0 ? Buffer.alloc(0) : reader.block(2);
    reader.expectEnd();
    return { kind: "hello", length, ...readExtensions(extensions) };
  } catch (error) {
    if (error instanceof RangeError) return malformed(error.message);
    throw error;
  }
}

function readExtensions(bytes: Buffer): { serverName: string | null; encrypted: boolean } {
  const reader = new Reader(bytes);
  const seen = new Set<number>();
  let serverName: string | null = null;
  while (reader.left > 0) {
    const type = reader.take(2).readUInt16BE();
    const data = reader.block(2);
    if (seen.has(type)) throw new RangeError("an extension is there twice");
    seen.add(type);
    if (type === SERVER_NAME) serverName = readServerName(data);
  }
  return { serverName, encrypted: ENCRYPTED.some((type) => seen.has(type)) };
}

function readServerName(data: Buffer): string {
  const outer = new Reader(data);
  const list = new Reader(outer.block(2));
  outer.expectEnd();
  if (list.take(1)[0] !== 0) throw new RangeError("its server name is of an unknown kind");
  const name = list.block(2).toString("latin1");
  list.expectEnd();
  if (!/^[\x21-\x7e]{1,255}$/.test(name)) throw new RangeError("its server name is no name");
  return name;
}

function more(bytes: number, maxBytes: number): ClientHello {
  return bytes > maxBytes ? malformed("the ClientHello is too long") : { kind: "more", bytes };
}

function malformed(why: string): ClientHello {
  return { kind: "malformed", why };
}

/** Reads from front to back. Throws a RangeError where the bytes end too early. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  take(length: number): Buffer {
    if (length > this.left) throw new RangeError("a length in it is wrong");
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  /** Bytes with their length in front, which has 1 or 2 bytes. */
  block(size: 1 | 2): Buffer {
    return this.take(this.take(size).readUIntBE(0, size));
  }

  expectEnd(): void {
    if (this.left > 0) throw new RangeError("a length in it is wrong");
  }
}
