import { createServer as createTlsServer } from "node:https";
import { createServer as createRawServer, type Socket } from "node:net";
import type { Writable } from "node:stream";

/** What the bench sends to this program, which answers with its {@link ServerPorts}. */
export interface ServerRequest {
  readonly addresses: readonly string[];
  readonly key: string;
  readonly cert: string;
}

/** By the addresses that were asked for, in their order. */
export type ServerPorts = readonly { readonly tls: number; readonly raw: number }[];

/** A contender must not wait for the server: it writes as much at once as a socket takes. */
const PIECE = Buffer.alloc(1024 ** 2, "x");

/*
 * The host that all contenders reach, as a process of its own: the bench's process carries the bytes of the cells.
 * `GET /N` over TLS, and a line `N` without it, are answered with N bytes.
 */
process.once("message", async ({ addresses, key, cert }: ServerRequest) => {
  const ports: ServerPorts = await Promise.all(
    addresses.map(async (address) => ({
      tls: await listening(tlsServer(key, cert), address),
      raw: await listening(createRawServer({ noDelay: true }, answerLines), address),
    })),
  );
  process.send?.(ports);
});
process.once("disconnect", () => process.exit());

function tlsServer(key: string, cert: string) {
  return createTlsServer({ key, cert, noDelay: true, keepAliveTimeout: 600_000 }, ({ url = "/0" }, response) => {
    const bytes = Number(url.slice(1));
    response.writeHead(200, { "content-length": bytes });
    void send(response, bytes).then(() => response.end());
  });
}

function answerLines(socket: Socket): void {
  socket.setEncoding("latin1").on("error", () => {});
  let line = "";
  socket.on("data", (text) => {
    line += text;
    if (!line.endsWith("\n")) return;
    const bytes = Number(line);
    line = "";
    void send(socket, bytes);
  });
}

async function send(to: Writable, bytes: number): Promise<void> {
  const closed = new Promise<void>((done) => to.once("close", done));
  for (let left = bytes; left > 0 && !to.destroyed; left -= PIECE.length) {
    const more = to.write(left < PIECE.length ? PIECE.subarray(0, left) : PIECE);
    if (!more) await Promise.race([new Promise<void>((drained) => to.once("drain", drained)), closed]);
  }
}

async function listening(server: ReturnType<typeof createRawServer>, host: string): Promise<number> {
  await new Promise<void>((done) => server.listen(0, host, done));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("a TCP server has a port");
  return address.port;
}
