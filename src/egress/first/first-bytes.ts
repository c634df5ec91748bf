import type { Duplex } from "node:stream";
import { HANDSHAKE_RECORD, readClientHello } from "./client-hello.ts";

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

function malformed(why: string): FirstBytes {
  return { kind: "malformed", why };
}

/** What a client sent before a verdict. The verdict is null if there was none in time, or the client closed. */
export interface HeldStart<V> {
  readonly bytes: Buffer;
  readonly verdict: V | null;
}

export interface Judging<V> {
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
