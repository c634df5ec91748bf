import { Readable, type Writable } from "node:stream";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { shapeProblem } from "../json/parse-json.ts";
import type { WhenRead } from "./connection/call.ts";
import type { McpConnection } from "./connection/connection.ts";
import { type Era, MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, protocolServer } from "./protocol-server.ts";

const NEWLINE = 0x0a;

/**
 * The lines of a stream, each with its newline. A line that is nested too deeply or has too many values is given to
 * `refuse` instead. Nothing more is read until that has settled. Throws for a line that is too long, because the start
 * of the next one is unknown. What follows the last newline is dropped.
 */
async function* messageLines(
  input: Readable,
  refuse: (line: string, problem: string) => Promise<void>,
): AsyncGenerator<Buffer, void, undefined> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of input as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      const line = Buffer.concat([...parts, chunk.subarray(from, end + 1)]);
      [parts, bytes, from] = [[], 0, end + 1];
      // Quicker than UTF-8, and the same for the characters that make the shape.
      const text = line.toString("latin1");
      const problem = shapeProblem(text, MAX_MESSAGE_VALUES);
      if (problem === null) yield line;
      else await refuse(text, problem);
    }
    parts.push(chunk.subarray(from));
    bytes += chunk.length - from;
    if (bytes > MAX_MESSAGE_BYTES) throw new Error(`a message has at most ${MAX_MESSAGE_BYTES} bytes`);
  }
}

/** At this number of messages that the client has not read, Corral reads nothing more from it. */
const MAX_UNREAD = 256;

export interface StdioOptions {
  readonly stdin: Readable;
  /** Nothing but the protocol may be written there. */
  readonly stdout: Writable;
  readonly connection: McpConnection;
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
