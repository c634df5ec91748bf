import { Readable, type Writable } from "node:stream";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import type { WhenRead } from "./calls/exchange.ts";
import type { Connection } from "./connection/connection.ts";
import { MAX_MESSAGE_BYTES } from "./message-limits.ts";
import { messageLines } from "./message-lines.ts";
import { type Era, protocolServer } from "./protocol-server.ts";

/** At this number of messages that the client has not read, Corral reads nothing more from it. */
const MAX_UNREAD = 256;

export interface StdioOptions {
  readonly stdin: Readable;
  /** Nothing but the protocol may be written there. */
  readonly stdout: Writable;
  readonly connection: Connection;
  /** Ends it as if the client had left. */
  readonly signal: AbortSignal;
  /** Invalid messages and similar errors, which do not end the connection. */
  readonly onTrouble: (error: Error) => void;
}

/** Serves one client on a pair of streams until it leaves, vanishes or is disconnected. */
export async function serveOnStdio({ stdin, stdout, connection, signal, onTrouble }: StdioOptions): Promise<void> {
  const transport = new ClosingTransport(stdin, stdout);
  const serve = ({ era }: { readonly era: Era }) => protocolServer(connection, era, transport.whenRead);
  const handle = serveStdio(serve, { transport, onerror: onTrouble });
  const stop = (): void => void handle.close();
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    await transport.closed;
  } finally {
    signal.removeEventListener("abort", stop);
    await handle.close();
  }
}

/**
 * Reports its end, whichever side ended it, even before the first message. Writes one message after another, because the
 * SDK adds a listener to the stream for each waiting message. If the client does not read, Corral reads no more from it.
 */
class ClosingTransport extends StdioServerTransport {
  readonly #stdin: Readable;
  readonly #lines: Readable;
  readonly #closed = Promise.withResolvers<void>();
  readonly #over = new AbortController();
  #sent: Promise<void> = Promise.resolve();
  #unread = 0;

  constructor(stdin: Readable, stdout: Writable) {
    const refuse = (line: string, problem: string): Promise<void> => this.#refuse(line, problem);
    const lines = Readable.from(messageLines(stdin, refuse), { objectMode: false });
    super(lines, stdout, { maxBufferSize: 2 * MAX_MESSAGE_BYTES });
    this.#stdin = stdin;
    this.#lines = lines;
  }

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Settles when the client has read all messages so far. */
  readonly whenRead: WhenRead = async (signal) => {
    const stopped = AbortSignal.any([signal, this.#over.signal]);
    stopped.throwIfAborted();
    const { promise: given, reject: giveUp } = Promise.withResolvers<never>();
    const onAbort = (): void => giveUp(stopped.reason);
    stopped.addEventListener("abort", onAbort, { once: true });
    try {
      await Promise.race([this.#sent, given]);
    } finally {
      stopped.removeEventListener("abort", onAbort);
    }
  };

  override async send(message: JSONRPCMessage): Promise<void> {
    this.#unread += 1;
    if (this.#unread === MAX_UNREAD) this.#lines.pause();
    const sent = this.#sent.then(() => super.send(message));
    this.#sent = sent.catch(() => {});
    try {
      await sent;
    } finally {
      this.#unread -= 1;
      if (this.#unread === MAX_UNREAD / 2 && !this.#over.signal.aborted) this.#lines.resume();
    }
  }

  /** Answers a message that the protocol never sees. */
  async #refuse(line: string, problem: string): Promise<void> {
    const message = `this server does not accept the message: ${problem}`;
    // The protocol's types have no null, with which JSON-RPC answers if the request is not known.
    const answer = { jsonrpc: "2.0", id: requestId(line), error: { code: -32_600, message } } as JSONRPCMessage;
    await this.send(answer).catch(() => {});
  }

  override async close(): Promise<void> {
    await super.close();
    this.#lines.destroy();
    // Nothing else ends a read of it that waits.
    this.#stdin.destroy();
    this.#over.abort(new Error("the client is gone"));
    this.#closed.resolve();
  }
}

/**
 * The id of a request that is not parsed: if it is a number at the start or at the end of the line, as clients write it.
 * There it belongs to the message itself, and to nothing inside it. A client would wait long for an answer without it.
 */
function requestId(line: string): number | null {
  const [, id] =
    /^\{"jsonrpc":"2\.0","id":(\d{1,15}),/.exec(line.slice(0, 50)) ??
    /,"id":(\d{1,15})\}\s*$/.exec(line.slice(-50)) ??
    [];
  return id === undefined ? null : Number(id);
}
