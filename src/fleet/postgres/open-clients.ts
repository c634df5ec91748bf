import type { Duplex } from "node:stream";
import type pg from "pg";
import { formatBytes } from "../../text/amounts.ts";

/** Makes clients, and can end the connections of all that have not ended. */
export interface OpenClients {
  /** For a pool. */
  readonly Client: new (
    config?: pg.ClientConfig,
  ) => pg.Client;
  make(): pg.Client;
  /** The first part of the server's version; 0: no connection has been made yet. */
  readonly version: number;
  /** At once, without a word to the server: what they were asked fails. */
  destroy(): void;
}

/** A row counts for more than its bytes: it is an object. */
const ROW_BYTES = 150;

export function openClients(
  driver: Pick<typeof pg, "Client">,
  optionsFor: (version: number) => pg.ClientConfig,
  maxAnswerBytes: number,
): OpenClients {
  const open = new Set<pg.Client>();
  let version = 0;
  class Client extends driver.Client {
    constructor(config?: pg.ClientConfig) {
      super({ ...config, ...optionsFor(version) });
      const connection = connectionOf(this);
      connection.on("parameterStatus", ({ parameterName, parameterValue }) => {
        if (parameterName === "server_version") version = Number.parseInt(parameterValue, 10);
      });
      boundAnswers(connection, maxAnswerBytes);
      open.add(this);
      this.once("end", () => open.delete(this));
    }
  }
  return {
    Client,
    make: () => new Client(),
    get version() {
      return version;
    },
    destroy() {
      for (const client of open) streamOf(client).destroy();
    },
  };
}

export function streamOf(client: pg.Client): Connection["stream"] {
  return connectionOf(client).stream;
}

/** The connection is cut when an answer is too long: what was asked fails, and is not asked again. */
function boundAnswers(connection: Connection, maxBytes: number): void {
  let bytes = 0;
  const begin = (): void => {
    bytes = 0;
  };
  const add = (more: number): void => {
    const isWithin = bytes <= maxBytes;
    bytes += more;
    if (!isWithin || bytes <= maxBytes) return;
    const error = new Error(`the server sends an answer of more than ${formatBytes(maxBytes)}`);
    // First, since the rest of the piece that was read may have the end of the answer.
    connection.emit("error", error);
    connection.stream.destroy(error);
  };
  connection.on("readyForQuery", begin);
  // It is no part of an answer, and a listener hears nothing else.
  connection.on("notification", begin);
  connection.on("dataRow", () => add(ROW_BYTES));
  const attach = connection.attachListeners.bind(connection);
  // Called with the stream that is read from in the end: the one of TLS is made later.
  connection.attachListeners = (stream) => {
    stream.on("data", (piece: Uint8Array) => add(piece.length));
    attach(stream);
  };
}

interface Connection {
  readonly stream: { destroy(error?: Error): void; unref?(): void };
  emit(name: "error", error: Error): void;
  attachListeners(stream: Duplex): void;
  on(name: "parameterStatus", heard: (said: { parameterName: string; parameterValue: string }) => void): void;
  on(name: "readyForQuery" | "notification" | "dataRow", heard: () => void): void;
}

/** The driver's types do not know it. */
function connectionOf(client: pg.Client): Connection {
  return (client as unknown as { connection: Connection }).connection;
}
