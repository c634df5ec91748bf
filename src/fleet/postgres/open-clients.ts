import type pg from "pg";

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

export function openClients(
  driver: Pick<typeof pg, "Client">,
  optionsFor: (version: number) => pg.ClientConfig,
): OpenClients {
  const open = new Set<pg.Client>();
  let version = 0;
  class Client extends driver.Client {
    constructor(config?: pg.ClientConfig) {
      super({ ...config, ...optionsFor(version) });
      connectionOf(this).on("parameterStatus", ({ parameterName, parameterValue }) => {
        if (parameterName === "server_version") version = Number.parseInt(parameterValue, 10);
      });
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

interface Connection {
  readonly stream: { destroy(): void; unref?(): void };
  on(name: "parameterStatus", heard: (said: { parameterName: string; parameterValue: string }) => void): void;
}

/** The driver's types do not know it. */
function connectionOf(client: pg.Client): Connection {
  return (client as unknown as { connection: Connection }).connection;
}
