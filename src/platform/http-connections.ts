import type { Server } from "node:http";
import type { Socket } from "node:net";

/**
 * The connections of a server that takes a bounded number. Every process on this machine can open one, also
 * without a token: if all are taken, the oldest that has not shown one is closed, so silent clients shut out no other.
 */
export class Connections {
  /** In the order in which they came. */
  readonly #unknown = new Set<Socket>();
  readonly #max: number;
  #count = 0;

  /** `max`: of all clients together. */
  constructor(server: Server, max = 128) {
    this.#max = max;
    server.on("connection", (socket) => this.#add(socket));
  }

  /** A request with the token has come by this one. */
  shownToken(socket: Socket): void {
    this.#unknown.delete(socket);
  }

  #add(socket: Socket): void {
    if (this.#count >= this.#max) {
      const [oldest] = this.#unknown;
      if (oldest === undefined) return void socket.destroy();
      this.#unknown.delete(oldest);
      oldest.destroy();
    }
    this.#count += 1;
    this.#unknown.add(socket);
    socket.once("close", () => {
      this.#count -= 1;
      this.#unknown.delete(socket);
    });
  }
}
