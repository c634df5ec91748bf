import { createServer, type Server, type Socket } from "node:net";
import { createInterface } from "node:readline";

/** One measurement that a client makes. */
export interface Order {
  readonly host: string;
  readonly port: number;
  /** For CONNECT. */
  readonly proxy?: { readonly host: string; readonly port: number };
  readonly protocol: "tls" | "http" | "raw";
  readonly bytes: number;
  /** On a connection that was opened before; else the measurement includes opening one. */
  readonly kept: boolean;
}

/** A client in its container, connected to the bench. */
export interface RemoteClient {
  /** Milliseconds. */
  measure(order: Order): Promise<number>;
}

/** So long a container may take until its client is there. */
const START_TIMEOUT_MS = 60_000;
const ORDER_TIMEOUT_MS = 120_000;

/** Where clients connect to and are given their orders. Disposing lets them go, and they end. */
export class Orders implements Disposable {
  readonly #clients = new Map<string, PromiseWithResolvers<RemoteClient>>();
  readonly #sockets = new Set<Socket>();
  readonly #servers: Server[] = [];

  /** Listens at one more address; returns the port. */
  async listen(host: string): Promise<number> {
    const server = createServer((socket) => this.#take(socket));
    this.#servers.push(server);
    await new Promise<void>((listening) => server.listen(0, host, listening));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("a TCP server has a port");
    return address.port;
  }

  /** The client of this name, as soon as it has connected. */
  async client(name: string): Promise<RemoteClient> {
    return await inTime(this.#named(name).promise, START_TIMEOUT_MS, `the client ${name} did not connect`);
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
    for (const server of this.#servers) server.close();
  }

  #take(socket: Socket): void {
    this.#sockets.add(socket);
    const lines = createInterface({ input: socket });
    const gone = Promise.withResolvers<never>();
    gone.promise.catch(() => {});
    socket.setNoDelay(true).on("error", () => {});
    socket.once("close", () => gone.reject(new Error("a client of the bench ended early")));
    const next = (): Promise<string> =>
      Promise.race([new Promise<string>((line) => lines.once("line", line)), gone.promise]);
    const measure = async (order: Order): Promise<number> => {
      socket.write(`${JSON.stringify(order)}\n`);
      const answer: unknown = JSON.parse(await inTime(next(), ORDER_TIMEOUT_MS, "a client did not answer"));
      if (typeof answer !== "number") throw new Error(`${JSON.stringify(order)}: ${answer}`);
      return answer;
    };
    lines.once("line", (name) => this.#named(name).resolve({ measure }));
  }

  #named(name: string): PromiseWithResolvers<RemoteClient> {
    const known = this.#clients.get(name) ?? Promise.withResolvers<RemoteClient>();
    this.#clients.set(name, known);
    return known;
  }
}

async function inTime<T>(promise: Promise<T>, ms: number, otherwise: string): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(otherwise)), ms);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
