import { spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname } from "node:path";

/** A bare repository behind HTTP, with a password; it is served by git's own `http-backend`. */
export interface HttpRemote extends AsyncDisposable {
  readonly url: string;
  /** The user and password of every request that had one. */
  readonly seen: readonly string[];
  /** Sends every further request there instead. */
  redirectTo(url: string): void;
}

export async function httpRemote(
  path: string,
  password: string,
  onRequest: () => void = () => {},
): Promise<HttpRemote> {
  const seen: string[] = [];
  let elsewhere: string | null = null;
  const server = createServer((request, response) => {
    onRequest();
    const [, given = ""] = (request.headers.authorization ?? "").split(" ");
    const login = Buffer.from(given, "base64").toString();
    if (login !== "") seen.push(login);
    const url = new URL(request.url ?? "/", "http://localhost");
    if (elsewhere !== null) {
      response.writeHead(302, { location: elsewhere + (request.url ?? "") }).end();
      return;
    }
    if (!login.endsWith(`:${password}`)) {
      response.writeHead(401, { "www-authenticate": "Basic realm=x" }).end();
      return;
    }
    const backend = spawn("git", ["http-backend"], {
      stdio: ["pipe", "pipe", "ignore"],
      env: {
        PATH: process.env.PATH,
        GIT_PROJECT_ROOT: dirname(path),
        GIT_HTTP_EXPORT_ALL: "1",
        REMOTE_USER: "somebody",
        REMOTE_ADDR: "127.0.0.1",
        REQUEST_METHOD: request.method,
        PATH_INFO: url.pathname,
        QUERY_STRING: url.search.slice(1),
        CONTENT_TYPE: request.headers["content-type"] ?? "",
        HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "",
        GIT_PROTOCOL: String(request.headers["git-protocol"] ?? ""),
      },
    });
    request.pipe(backend.stdin);
    const chunks: Buffer[] = [];
    backend.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
    backend.once("close", () => {
      const whole = Buffer.concat(chunks);
      const end = whole.indexOf("\r\n\r\n");
      const lines = whole.subarray(0, end).toString().split("\r\n");
      const headers = lines.map((line) => line.split(": ") as [string, string]);
      const status = Number(headers.find(([name]) => name === "Status")?.[1].slice(0, 3) ?? 200);
      response.writeHead(status, Object.fromEntries(headers.filter(([name]) => name !== "Status")));
      response.end(whole.subarray(end + 4));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/remote.git`,
    seen,
    redirectTo: (url) => {
      elsewhere = url;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
