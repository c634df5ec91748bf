import { once } from "node:events";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import type { Certificate } from "./certificates.ts";

/** What a server does with a connection, over TLS or not. */
export type Service =
  /** Sends back what comes. */
  | { readonly kind: "echo" }
  /** Answers each request; absent: with {@link mirrored}. */
  | { readonly kind: "http"; readonly answer?: (request: IncomingMessage, response: ServerResponse) => void }
  /** Whatever a test wants, with the bare bytes. */
  | { readonly kind: "bytes"; readonly talk: (socket: Duplex) => void };

export type Port = Service & {
  /** Speaks TLS with it. */
  readonly certificate?: Certificate | undefined;
  /** True: only with clients that begin with it. */
  readonly alsoPlain?: true;
};

export interface SiteSpec {
  /** By port. */
  readonly ports: Readonly<Record<number, Port>>;
}

/** A host that the test plays, at a loopback address of its own. */
export interface Site {
  readonly name: string;
  readonly address: string;
  /** How many connections came. */
  connections: number;
  /** All that came, decrypted, as Latin-1, with at most 1 MB kept. */
  readonly arrived: string;
  /** The server names of its TLS clients. */
  readonly serverNames: readonly string[];
}

export interface Sites extends AsyncDisposable {
  open(name: string, spec: SiteSpec): Promise<Site>;
  /** All that this one got; without a name: all that any got. */
  arrived(name?: string): string;
}

/** The first byte of a TLS client. */
const HANDSHAKE = 22;
const MAX_KEPT = 1_000_000;

/** Addresses of this process alone: other tests run beside it, and use the same ports. */
export function openSites(): Sites {
  const block = `127.${100 + (process.pid % 100)}.${(process.pid >> 8) % 250}`;
  const sites: OpenSite[] = [];
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  const listen = async (site: OpenSite, port: number, serve: (socket: Socket) => void): Promise<void> => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      site.connections += 1;
      sockets.add(socket.on("error", () => {}).once("close", () => sockets.delete(socket)));
      serve(socket);
    });
    servers.push(server.listen(port, site.address));
    await once(server, "listening");
  };
  return {
    async open(name, { ports }) {
      const site = new OpenSite(name, `${block}.${sites.length + 1}`);
      sites.push(site);
      for (const [port, service] of Object.entries(ports))
        await listen(site, Number(port), (socket) => site.serve(socket, service));
      return site;
    },
    arrived: (name) =>
      sites
        .filter((site) => name === undefined || site.name === name)
        .map(({ arrived }) => arrived)
        .join("\n"),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise((closed) => server.close(closed))));
    },
  };
}

class OpenSite implements Site {
  readonly name: string;
  readonly address: string;
  connections = 0;
  arrived = "";
  readonly serverNames: string[] = [];

  constructor(name: string, address: string) {
    this.name = name;
    this.address = address;
  }

  serve(socket: Socket, { alsoPlain, ...port }: Port): void {
    if (alsoPlain !== true) {
      this.#speak(socket, port);
      return;
    }
    socket.once("data", (first: Buffer) => {
      socket.pause().unshift(first);
      if (first[0] === HANDSHAKE) this.#speak(socket, port);
      else {
        this.#speak(socket, { ...port, certificate: undefined });
        socket.resume();
      }
    });
  }

  #speak(socket: Socket, service: Port): void {
    const stream = service.certificate === undefined ? socket : this.#encrypted(socket, service.certificate);
    stream.on("error", () => {});
    if (service.kind === "echo") stream.pipe(stream);
    else if (service.kind === "bytes") service.talk(stream);
    else {
      const http = createHttpServer({ insecureHTTPParser: true }, service.answer ?? mirrored);
      http.on("clientError", () => stream.destroy());
      http.emit("connection", stream);
    }
    // After the server of Node, which otherwise reads the socket by itself.
    stream.on("data", (chunk: Buffer) => {
      if (this.arrived.length < MAX_KEPT) this.arrived += chunk.toString("latin1");
    });
  }

  #encrypted(socket: Socket, { key, cert }: Certificate): TLSSocket {
    return new TLSSocket(socket, {
      isServer: true,
      key,
      cert,
      SNICallback: (name, done) => {
        this.serverNames.push(name);
        done(null);
      },
    });
  }
}

/** Answers with what it got: method, path, headers and body. */
export function mirrored(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const { method, url, rawHeaders } = request;
    const text = JSON.stringify({ method, url, rawHeaders, body: Buffer.concat(chunks).toString("latin1") });
    response.setHeader("content-type", "application/json");
    response.end(text);
  });
}
