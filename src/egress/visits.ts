import type { Duplex } from "node:stream";
import type { Visit } from "./model/outlet.ts";
import type { Meter } from "./traffic/meter.ts";

/** The open connections of one cell. Each holds a place in the budget from its first moment to its last. */
export class Visits {
  readonly #meter: Meter;
  readonly #open = new Set<Visit>();
  #closed = false;

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  /** Null if there is no room; then the socket is closed, after `last` if there is something to say. */
  open(socket: Duplex, last: string): Visit | null {
    // An error closes the socket too, and that is what counts.
    socket.on("error", () => {});
    if (this.#closed || socket.destroyed) {
      socket.destroy();
      return null;
    }
    if (!this.#meter.take("connections", 1)) {
      // It is not waited for, so that those that are too many hold nothing.
      socket.end(last, () => socket.destroy());
      return null;
    }
    const ended = new AbortController();
    const visit: Visit = {
      socket,
      signal: ended.signal,
      isAllowed: () => true,
      close: () => void socket.destroy(),
    };
    this.#open.add(visit);
    socket.once("close", () => {
      this.#open.delete(visit);
      this.#meter.release();
      ended.abort();
    });
    return visit;
  }

  /** Closes those that are no longer allowed. */
  review(): void {
    for (const visit of this.#open) if (!visit.isAllowed()) visit.close();
  }

  /** Closes all, and takes no more. */
  async closeAll(): Promise<void> {
    this.#closed = true;
    const closing = [...this.#open].map(
      (visit) => new Promise((resolve) => visit.signal.addEventListener("abort", resolve)),
    );
    for (const visit of this.#open) visit.close();
    await Promise.all(closing);
  }
}
