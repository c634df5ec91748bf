/** The random of a ServerHello that asks for a second ClientHello (RFC 8446 section 4.1.3). */
import type { Duplex } from "node:stream";

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

function malformed(why: string): { readonly kind: "malformed"; readonly why: string } {
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

/** What the first bytes of a client are. */
export type FirstBytes =
  | { readonly kind: "more" }
  /** A ClientHello, which ends at `length`. */
  | {
      readonly kind: "tls";
      readonly serverName: string | null;
      readonly encrypted: boolean;
      readonly length: number;
    }
  | { readonly kind: "http" }
  /** Another protocol, of which Corral knows no names. */
  | { readonly kind: "other" }
  | { readonly kind: "malformed"; readonly why: string };

const [TAB, LF, CR, SPACE, NUL] = [9, 10, 13, 32, 0];
const MORE = { kind: "more" } as const;
const OTHER = { kind: "other" } as const;
/** A request without a version, and a line of a proxy in front of one: no host of it would be judged. */
const WITHOUT_VERSION = /^(GET|PRI|PROXY)[ \t]/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these bytes tell binary protocols from text.
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f]/;

/**
 * Reads just enough to tell TLS and HTTP from everything else. A line of text is read to its end, since a server may take
 * anything with `HTTP/` at its end for a request, whatever its method.
 */
export function readFirstBytes(bytes: Buffer, maxBytes: number, maxLineBytes: number): FirstBytes {
  if (bytes.length === 0) return MORE;
  if (bytes[0] === HANDSHAKE_RECORD) {
    const hello = readClientHello(bytes, maxBytes);
    return hello.kind === "hello" ? { ...hello, kind: "tls" } : hello.kind === "more" ? MORE : hello;
  }
  if (isOldHello(bytes)) return malformed("it is a hello of SSL 2");
  return readText(bytes, maxLineBytes);
}

/** A ClientHello in the form of SSL 2 has no server name, and servers may still take it. */
function isOldHello(bytes: Buffer): boolean {
  return ((bytes[0] ?? 0) & 0x80) !== 0 && bytes[2] === 1 && (bytes[3] === 3 || bytes[3] === 0) && bytes.length > 4;
}

function readText(bytes: Buffer, maxLineBytes: number): FirstBytes {
  // A server may skip these in front of a request line.
  const from = bytes.findIndex((byte) => ![TAB, LF, CR, SPACE].includes(byte));
  if (from < 0) return bytes.length > maxLineBytes ? malformed("it begins with too many empty lines") : MORE;
  // The signature of the binary form of the PROXY protocol.
  if (bytes[from] === NUL && from > 0) return malformed("it is a line of a proxy");
  const lineEnd = bytes.indexOf(LF, from);
  const line = bytes.subarray(from, lineEnd < 0 ? bytes.length : lineEnd).toString("latin1");
  const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]*/.exec(line)?.[0] ?? "";
  const after = line[token.length];
  if (token === "" || (after !== undefined && !" \t\r".includes(after))) return OTHER;
  if (lineEnd < 0) {
    // Binary protocols, and git's own: their lines never end, and no server takes them for a request.
    if (CONTROL.test(line) && !/^[A-Za-z_-]+[ \t]/.test(line)) return OTHER;
    return bytes.length > maxLineBytes ? malformed("its first line is too long") : MORE;
  }
  if (/HTTP\//i.test(line)) return { kind: "http" };
  return WITHOUT_VERSION.test(line) ? malformed("it is a request without a version of HTTP") : OTHER;
}

/** What a client sent before a verdict. The verdict is null if there was none in time, or the client closed. */
interface HeldStart<V> {
  readonly bytes: Buffer;
  readonly verdict: V | null;
}

interface Judging<V> {
  /** Null as long as more bytes are needed. `ended`: the client has ended its side, so no more come. */
  readonly judge: (bytes: Buffer, ended: boolean) => V | null;
  /** Bytes that came before. */
  readonly start?: Buffer;
  /** From the first byte, since a server may speak first. */
  readonly timeoutMs: number;
}

/** Reads until there is a verdict, and leaves the socket paused. */
export function bytesUntilVerdict<V>(socket: Duplex, { judge, start, timeoutMs }: Judging<V>): Promise<HeldStart<V>> {
  return new Promise((resolve) => {
    let bytes = start ?? Buffer.alloc(0);
    let timer: NodeJS.Timeout | undefined;
    let done = false;
    const finish = (verdict: V | null): void => {
      done = true;
      clearTimeout(timer);
      socket.off("data", add).off("end", end).off("close", close).pause();
      resolve({ bytes, verdict });
    };
    const look = (ended: boolean): void => {
      const verdict = judge(bytes, ended);
      if (verdict !== null || ended) finish(verdict);
      else if (bytes.length > 0) timer ??= setTimeout(close, timeoutMs);
    };
    const add = (piece: Buffer): void => {
      bytes = bytes.length === 0 ? piece : Buffer.concat([bytes, piece]);
      look(false);
    };
    const end = (): void => look(true);
    const close = (): void => finish(null);
    socket.on("data", add).once("end", end).once("close", close);
    if (socket.destroyed) close();
    else if (bytes.length > 0 || socket.readableEnded) look(socket.readableEnded);
    if (!done) socket.resume();
  });
}
