import type { Server } from "node:http";
import type { Duplex } from "node:stream";
import { createServer } from "../../platform/http.ts";
import { closeWith } from "../carry/down-flow.ts";
import { BOUNDS, type Visit } from "../model/outlet.ts";
import { HttpConnection, type HttpParts } from "./connection.ts";
import { type HeadFault, type RequestReceiver, unparsedAnswer } from "./request-head.ts";

/** Called for CONNECT, with the socket and what the client sent behind the request. */
export type OnConnect = (visit: Visit, authority: string, behind: Buffer) => void;

/** Node's HTTP parser, strict, for the connections of one cell. It listens nowhere. */
export class HttpServer implements Disposable {
  readonly #parts: HttpParts;
  readonly #server: Server;
  readonly #open = new Map<
    Duplex,
    { readonly connection: HttpConnection; readonly visit: Visit; readonly asked: RequestReceiver }
  >();

  constructor(parts: HttpParts, onConnect: OnConnect) {
    this.#parts = parts;
    this.#server = createServer({
      insecureHTTPParser: false,
      maxHeaderSize: BOUNDS.headerBytes,
      headersTimeout: BOUNDS.headersTimeoutMs,
      // Bodies may take long; a silent one is closed by `timeout`.
      requestTimeout: 0,
      keepAliveTimeout: BOUNDS.keepAliveMs,
      connectionsCheckingInterval: 1000,
      requireHostHeader: false,
      noDelay: true,
    });
    this.#server.timeout = BOUNDS.httpIdleMs;
    this.#server.on("request", (request, response) =>
      this.#open.get(request.socket)?.connection.take(request, response, false),
    );
    this.#server.on("checkContinue", (request, response) =>
      this.#open.get(request.socket)?.connection.take(request, response, true),
    );
    this.#server.on("clientError", (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) =>
      this.#refuse(error, socket),
    );
    this.#server.on("connect", (request, socket, behind) => {
      const open = this.#open.get(socket);
      // An answer before it would come in between the bytes of the tunnel.
      if (open === undefined || open.asked !== "proxy" || !open.connection.isIdle) {
        open?.connection.refuse({ reason: "method", detail: "CONNECT is refused: this is no proxy." });
        socket.destroy();
        return;
      }
      this.#open.delete(socket);
      onConnect(open.visit, request.url ?? "", behind);
    });
    // Without this, Node does not watch the time that a request takes; with it, until `close`.
    this.#server.emit("listening");
  }

  /** Takes over a connection of the cell, of which `first` has been read. */
  serve(visit: Visit, asked: RequestReceiver, first: Buffer): void {
    const { socket } = visit;
    this.#open.set(socket, { visit, asked, connection: new HttpConnection(this.#parts, visit, asked) });
    visit.signal.addEventListener("abort", () => this.#open.delete(socket), { once: true });
    if (first.length > 0) socket.unshift(first);
    this.#server.emit("connection", socket);
    socket.resume();
  }

  [Symbol.dispose](): void {
    this.#server.close();
  }

  #refuse(error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Duplex): void {
    const open = this.#open.get(socket);
    if (open === undefined || error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
      return;
    }
    const fault = parserFault(error);
    open.connection.refuse(fault);
    if (open.connection.isIdle) closeWith(socket, unparsedAnswer(fault));
    else socket.destroy();
  }
}

function parserFault({ code, rawPacket }: NodeJS.ErrnoException & { rawPacket?: Buffer }): HeadFault {
  const detail = rawPacket?.subarray(0, 14).toString("latin1").startsWith("PRI * HTTP/2")
    ? "HTTP/2 without TLS is refused. Use HTTP/1.1."
    : code === "ERR_HTTP_REQUEST_TIMEOUT"
      ? "The request did not come in time."
      : code === "HPE_HEADER_OVERFLOW"
        ? `The headers are longer than ${BOUNDS.headerBytes} bytes.`
        : "The request is no valid HTTP/1.1.";
  return { reason: code === "HPE_HEADER_OVERFLOW" ? "limit" : "malformed", detail };
}
