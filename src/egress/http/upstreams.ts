import type { ClientRequestArgs, Agent as HttpAgent } from "node:http";
import type { Duplex } from "node:stream";
import { Agent } from "../../platform/http.ts";
import { BOUNDS } from "../model/bounds.ts";

/** The connections to hosts of one connection of the cell: one at a time, which is kept for its next request. */
export class Upstreams {
  #agent: KeptOne | null = null;
  #key = "";

  /** An agent for this host. Requests with the same `key` may share a connection; `open` makes it. */
  agentFor(key: string, open: () => Promise<Duplex>): HttpAgent {
    if (key !== this.#key) this.close();
    this.#key = key;
    this.#agent ??= new KeptOne();
    this.#agent.open = open;
    return this.#agent;
  }

  /** Also ends requests that are under way. */
  close(): void {
    this.#agent?.destroy();
    this.#agent = null;
  }
}

class KeptOne extends Agent {
  open: () => Promise<Duplex> = () => Promise.reject(new Error("no host"));

  constructor() {
    super({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1, timeout: BOUNDS.upstreamKeepAliveMs });
  }

  override createConnection(
    _options: ClientRequestArgs,
    done?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    this.open().then(
      (socket) => done?.(null, socket),
      (error: Error) => done?.(error, undefined as unknown as Duplex),
    );
  }
}
