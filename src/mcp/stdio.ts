import type { Readable, Writable } from "node:stream";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import type { Connection } from "./connection.ts";
import { protocolServer } from "./protocol-server.ts";

/** A longer message ends the connection: nobody knows where the next one begins. */
const MAX_MESSAGE_BYTES = 16 * 1024 ** 2;

export interface StdioOptions {
  readonly stdin: Readable;
  /** Nothing but the protocol may be written there. */
  readonly stdout: Writable;
  readonly connection: Connection;
  /** Ends it as if the client had left. */
  readonly signal: AbortSignal;
  /** Messages that make no sense, and the like; nothing ends by them. */
  readonly onTrouble: (error: Error) => void;
}

/** Serves one client on a pair of streams until it leaves, vanishes or is sent away. */
export async function serveOnStdio({ stdin, stdout, connection, signal, onTrouble }: StdioOptions): Promise<void> {
  const transport = new ClosingTransport(stdin, stdout, { maxBufferSize: MAX_MESSAGE_BYTES });
  const handle = serveStdio(({ era }) => protocolServer(connection, era), { transport, onerror: onTrouble });
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
 * Tells of its end whoever ended it, also before anybody has said a word; and writes one message after another, for the
 * SDK has a listener on the stream for each one that waits.
 */
class ClosingTransport extends StdioServerTransport {
  readonly #closed = Promise.withResolvers<void>();
  #sent: Promise<void> = Promise.resolve();

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  override async send(message: JSONRPCMessage): Promise<void> {
    const sent = this.#sent.then(() => super.send(message));
    this.#sent = sent.catch(() => {});
    await sent;
  }

  override async close(): Promise<void> {
    await super.close();
    this.#closed.resolve();
  }
}
