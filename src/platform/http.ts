import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/*
 * What Corral uses of `node:http`. An `import` of that module reads every property of it, and one of them loads the whole of `fetch`: 15 ms
 * of a processor in every short command.
 */

export const { Agent, createServer, request } = process.getBuiltinModule("node:http");

/** The one `Host` of a request, in lower case; null: it has none, or several. Node keeps the first, and a proxy may have checked another one. */
export function onlyHost(rawHeaders: readonly string[]): string | null {
  const hosts = rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === "host");
  return hosts.length === 1 ? (hosts[0]?.toLowerCase() ?? null) : null;
}

/** How many connections there may be at once. */
interface ConnectionLimits {
  readonly unknown: number;
  /** That have shown a token. */
  readonly known: number;
}

/**
 * The connections of a server that takes a bounded number. Every process on this machine can open one, also without a token: those that
 * have not shown one are bounded apart, and the oldest is closed for a new one, so silent clients shut out no other.
 */
export class Connections {
  /** In the order in which they came. */
  readonly #unknown = new Set<Socket>();
  readonly #known = new Set<Socket>();
  readonly #limits: ConnectionLimits;
  readonly #onClosed: () => void;
  #isSweeping = false;

  /** `onClosed`: one was closed because there are too many. */
  constructor(server: Server, limits: ConnectionLimits, onClosed: () => void = () => {}) {
    this.#limits = limits;
    this.#onClosed = onClosed;
    server.on("connection", (socket) => this.#add(socket));
  }

  /** A request with the token has come by this one. False: there are as many already. */
  shownToken(socket: Socket): boolean {
    if (this.#known.has(socket)) return true;
    if (this.#known.size >= this.#limits.known) return false;
    this.#unknown.delete(socket);
    this.#known.add(socket);
    return true;
  }

  #add(socket: Socket): void {
    this.#unknown.add(socket);
    socket.once("close", () => {
      this.#unknown.delete(socket);
      this.#known.delete(socket);
    });
    if (this.#unknown.size <= this.#limits.unknown) return;
    // Many connections are taken in one turn, before anything of them is read: one that brings a token at once keeps its place.
    if (this.#unknown.size > 4 * this.#limits.unknown) this.#closeOldest();
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    setImmediate(() => setImmediate(() => this.#sweep()));
  }

  #sweep(): void {
    this.#isSweeping = false;
    while (this.#unknown.size > this.#limits.unknown) this.#closeOldest();
  }

  #closeOldest(): void {
    const [oldest] = this.#unknown;
    if (oldest === undefined) return;
    this.#unknown.delete(oldest);
    oldest.destroy();
    this.#onClosed();
  }
}

/** A client that sends requests without waiting for answers sends few. */
const MAX_WAITING = 16;

/**
 * Answers the requests of one connection one after another: Node gives all that have come to the listener at once. A connection with too many
 * is closed. `onClosed`: one was.
 */
export function oneAtATime(listener: RequestListener, onClosed: () => void): RequestListener {
  const lines = new WeakMap<Socket, (() => void)[]>();
  return (request: IncomingMessage, response: ServerResponse<IncomingMessage> & { req: IncomingMessage }) => {
    const { socket } = request;
    // The parser goes on with what it has.
    if (socket.destroyed) return;
    const begin = (): void => {
      response.once("close", () => {
        const next = lines.get(socket)?.shift();
        if (next === undefined || socket.destroyed) lines.delete(socket);
        else next();
      });
      listener(request, response);
    };
    const line = lines.get(socket);
    if (line === undefined) {
      lines.set(socket, []);
      return begin();
    }
    // What a waiting request does when its connection breaks.
    request.on("error", () => {});
    line.push(begin);
    if (line.length <= MAX_WAITING) return;
    socket.destroy();
    onClosed();
  };
}

const PIECE_BYTES = 4096;
const UPLOAD = "corral-upload";

/** The parser gets the rest of the body as it comes: its client was let in, and it may be gigabytes. */
export function parseAsItComes(request: IncomingMessage): void {
  request.socket.emit(UPLOAD, request);
}

/**
 * Gives the parser of each connection what comes in small pieces, until the connection is closed. Node gives it all that one read took, so a client
 * that is refused at its first request could have a thousand others made of what it sent with it.
 */
export function parseInPieces(server: Server): void {
  const upgraded = new WeakSet<Duplex>();
  server.prependListener("upgrade", (_, socket) => void upgraded.add(socket));
  server.on("connection", (socket) => {
    const [parse] = socket.listeners("data");
    if (parse === undefined) return;
    socket.off("data", parse as (bytes: Buffer) => void);
    let upload: IncomingMessage | null = null;
    socket.on(UPLOAD, (request: IncomingMessage) => {
      upload = request;
    });
    const feed = (bytes: Buffer): void => {
      for (let at = 0, end = 0; at < bytes.length && !socket.destroyed; at = end) {
        // What comes with the request of an upgrade is for no parser.
        if (upgraded.has(socket)) return void socket.destroy();
        end = upload?.complete === false ? bytes.length : at + PIECE_BYTES;
        parse.call(socket, bytes.subarray(at, end));
      }
      if (upgraded.has(socket)) socket.off("data", feed);
    };
    socket.on("data", feed);
  });
}

/**
 * True if no header that a decision rests on, beside `Host`, comes twice. Node keeps the first of several, and a proxy before it may have
 * checked another one.
 */
export function isUnambiguous({ rawHeaders }: Pick<IncomingMessage, "rawHeaders">): boolean {
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  return DECIDING.every((name) => names.indexOf(name) === names.lastIndexOf(name));
}

const DECIDING = ["authorization", "content-type", "origin"];
