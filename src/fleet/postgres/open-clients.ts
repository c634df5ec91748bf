import type pg from "pg";

/** Makes clients, and can end the connections of all that have not ended. */
export interface OpenClients {
  /** For a pool. */
  readonly Client: new (
    config?: pg.ClientConfig,
  ) => pg.Client;
  make(): pg.Client;
  /** At once, without a word to the server: what they were asked fails. */
  destroy(): void;
}

export function openClients(driver: Pick<typeof pg, "Client">, options: pg.ClientConfig): OpenClients {
  const open = new Set<pg.Client>();
  class Client extends driver.Client {
    constructor(config?: pg.ClientConfig) {
      super(config);
      open.add(this);
      this.once("end", () => open.delete(this));
    }
  }
  return {
    Client,
    make: () => new Client(options),
    destroy() {
      for (const client of open) streamOf(client).destroy();
    },
  };
}

/** The driver's types do not know it. */
export function streamOf(client: pg.Client): { destroy(): void; unref?(): void } {
  return (client as unknown as { connection: { stream: { destroy(): void; unref?(): void } } }).connection.stream;
}
