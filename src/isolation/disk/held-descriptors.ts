import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { Socket } from "node:net";

/**
 * The connections of a Unix socket's server, in which a client can leave descriptors: while the server does not read, they
 * wait in its queue and keep files open that no process of the client has.
 */
export class HeldDescriptors {
  readonly #sockets = new Set<Socket>();

  constructor(server: Server) {
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  /** Ends every connection in which descriptors wait: no client of the protocol sends one. True if there was any. */
  end(): boolean {
    const holding = [...this.#sockets].filter(holds);
    for (const socket of holding) socket.destroy();
    return holding.length > 0;
  }
}

/** A kernel before 5.11 does not report it: there, a client that does not read its answers is suspected. */
function holds(socket: Socket): boolean {
  const { fd = -1 } = (socket as { _handle?: { fd?: number } | null })._handle ?? {};
  if (fd < 0) return false;
  const waiting = /^scm_fds:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
  return waiting === undefined ? socket.writableLength > 0 : waiting !== "0";
}
