import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createHttp, type RequestListener } from "node:http";
import { createServer as createHttps } from "node:https";
import { type AddressInfo, createServer as createTcp, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTls, type TlsOptions } from "node:tls";

export interface Identity {
  readonly key: string;
  /** Signed by itself, so it is its own authority. */
  readonly cert: string;
}

/** A certificate for these names, made by the `openssl` program, which Node has no match for. */
export function identityFor(...names: string[]): Identity {
  const dir = mkdtempSync(join(tmpdir(), "corral-identity-"));
  try {
    const [key, cert] = [join(dir, "key"), join(dir, "cert")];
    const alternatives = names.map((name) => (/^[\d.]+$/.test(name) ? `IP:${name}` : `DNS:${name}`)).join(",");
    const options = `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test -addext`;
    execFileSync("openssl", [...options.split(" "), `subjectAltName=${alternatives}`, "-keyout", key, "-out", cert], {
      stdio: "ignore",
    });
    return { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") };
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** A server of a test on loopback. */
export interface TestServer extends AsyncDisposable {
  readonly port: number;
  /** Connections so far. */
  readonly connections: () => number;
}

export function tcpServer(onConnection: (socket: Socket) => void): Promise<TestServer> {
  return started(createTcp({ allowHalfOpen: true }, onConnection));
}

export function httpServer(onRequest: RequestListener): Promise<TestServer> {
  return started(createHttp(onRequest));
}

export function httpsServer(options: TlsOptions, onRequest: RequestListener): Promise<TestServer> {
  return started(createHttps(options, onRequest));
}

export function tlsServer(options: TlsOptions, onConnection: (socket: Socket) => void): Promise<TestServer> {
  return started(createTls(options, (socket) => onConnection(socket.on("error", () => {}))));
}

async function started(server: Server): Promise<TestServer> {
  const sockets = new Set<Socket>();
  let connections = 0;
  server.on("connection", (socket: Socket) => {
    connections += 1;
    sockets.add(socket.on("error", () => {}));
    socket.once("close", () => sockets.delete(socket));
  });
  server.on("tlsClientError", () => {});
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}
