import { HANDSHAKE_RECORD } from "./client-hello.ts";

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
