import type { readlinkSync as readLink } from "node:fs";
import type { createServer as makeServer, Server } from "node:net";

/** One answer of this program, with the listening socket if there is one. */
export interface InsideAnswer {
  /** The index of the place that was asked for. */
  readonly place: number;
  /** The kernel's number of the network namespace in which the program runs. */
  readonly namespace: string;
  /** Why nothing can listen there, e.g. `EADDRINUSE`; absent: the socket comes with this answer. */
  readonly failure?: string;
}

export interface InsidePlace {
  readonly address: string;
  readonly port: number;
}

/**
 * A separate program, started with its text inside the network namespace of a cell: it makes listening sockets there, hands
 * them to the process that started it, and ends. It must not use anything from outside of this function. A file of its own
 * would be found, read and parsed at each start of a cell.
 */
export function listenInside(
  { createServer }: { readonly createServer: typeof makeServer },
  { readlinkSync }: { readonly readlinkSync: typeof readLink },
  places: readonly InsidePlace[],
): void {
  const namespace = readlinkSync("/proc/self/ns/net").replace(/\D/g, "");
  const servers: Server[] = [];
  /** Null if it listens. */
  const failureOf = (server: Server, host: string, port: number): Promise<string | null> =>
    new Promise((resolve) => {
      server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
      server.listen({ host, port, exclusive: true }, () => resolve(null));
    });
  const answerAll = async (): Promise<void> => {
    for (const [place, { address, port }] of places.entries()) {
      // Until this program has ended it accepts connections too: it ends those at once, and the client may retry.
      const server = createServer({ pauseOnConnect: true }, (socket) => socket.destroy());
      servers.push(server);
      const failure = await failureOf(server, address, port);
      const answer: InsideAnswer = failure === null ? { place, namespace } : { place, namespace, failure };
      await new Promise((sent) => process.send?.(answer, failure === null ? server : undefined, {}, sent));
      if (failure !== null || !process.connected) return;
    }
  };
  void answerAll().then(() => process.connected && process.disconnect());
  // Also if the other process has ended: open sockets would keep this program.
  process.once("disconnect", () => {
    for (const server of servers) server.close();
  });
}
