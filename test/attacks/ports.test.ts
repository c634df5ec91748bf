import { once } from "node:events";
import { type ClientRequest, request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { ServiceClient } from "../../src/client/client.ts";
import { connectToPort, transportTo } from "../../src/client/node.ts";
import { type CliProject, cliProject } from "../cli/cli-project.ts";
import { startService, type TestService } from "../serve/service-client.ts";

/** What a page gets from a server that does all that it can to reach beyond its origin. */
const HOSTILE = `
import base64, hashlib, socketserver, sys, time
class Hostile(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline().decode('latin1')
        headers = {}
        raw = ''
        while (one := self.rfile.readline().decode('latin1').strip()):
            raw += one + '\\n'
            name, _, value = one.partition(':')
            headers[name.lower()] = value.strip()
        path = line.split(' ')[1]
        print(line.strip(), flush=True)
        w = self.wfile.write
        if path == '/redirect':
            w(b'HTTP/1.1 302 Found\\r\\nLocation: http://127.0.0.1:SERVICE/v1/runs\\r\\nSet-Cookie: a=1; Domain=localhost\\r\\nContent-Length: 0\\r\\n\\r\\n')
        elif path == '/cookies':
            w(b'HTTP/1.1 200 OK\\r\\nSet-Cookie: corral-port=mine; Path=/\\r\\nSet-Cookie: b=2; Domain=127.0.0.1\\r\\nAccess-Control-Allow-Origin: *\\r\\nContent-Length: 2\\r\\n\\r\\nok')
        elif path == '/huge':
            w(b'HTTP/1.1 200 OK\\r\\n')
            try:
                for n in range(100000): w(b'X-%d: ' % n + b'y' * 1000 + b'\\r\\n')
            except OSError: pass
        elif path == '/endless':
            w(b'HTTP/1.1 200 OK\\r\\n\\r\\n')
            sent = 0
            try:
                while True:
                    w(b'z' * 65536)
                    sent += 65536
                    if sent % (64 * 1048576) == 0: print('SENT', sent, flush=True)
            except OSError: pass
            print('STOPPED', flush=True)
        elif path == '/status': w(b'HTTP/1.1 099 No\\r\\nContent-Length: 0\\r\\n\\r\\n')
        elif path == '/not-http': w(b'SSH-2.0-no\\r\\n')
        elif path == '/smuggled':
            w(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nokHTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\nX-Smuggled: 1\\r\\n\\r\\nevil')
            time.sleep(0.5)
        elif path == '/upgrade':
            w(b'HTTP/1.1 101 Switching Protocols\\r\\nConnection: upgrade\\r\\nUpgrade: h2c\\r\\n\\r\\n')
            time.sleep(0.5)
        elif path == '/socket':
            accept = base64.b64encode(hashlib.sha1((headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest())
            w(b'HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nSet-Cookie: corral-port=mine\\r\\nSec-WebSocket-Accept: ' + accept + b'\\r\\n\\r\\nfirst ')
            w(b'got ' + self.rfile.read(5))
        else:
            body = raw.encode('latin1')
            w(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 64
print('up', flush=True)
Server(('127.0.0.1', 8000), Hostile).serve_forever()
`;

let project: CliProject;
let service: TestService;
let client: ServiceClient;
let session: string;
let server: string;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted" },
    workers: {
      w: {
        image: "corral/python",
        command: ["true"],
        ports: { web: 8000 },
        shell_rules: { default: "pre_approved" },
        limits: { memory: "256m", pids: 128 },
      },
    },
  });
  service = await startService(project);
  client = new ServiceClient(transportTo(`http://127.0.0.1:${service.port}`), service.token);
  session = (await client.call("sessions.open", { worker: "w" })).id;
  const env = { CODE: HOSTILE.replace("SERVICE", String(service.port)) };
  server = (await client.call("sessions.start", { session, command: 'exec python3 -c "$CODE"', env })).id;
  await vi.waitFor(async () => expect(await printedText()).toContain("up\n"), { timeout: 20_000 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await project[Symbol.asyncDispose]();
});

async function printedText(): Promise<string> {
  let printed = "";
  for await (const event of client.stream("sessions.output", { session, command: server, follow: false }))
    if (event.type === "printed") printed += Buffer.from(event.base64, "base64").toString();
  return printed;
}

interface Shown {
  readonly host: string;
  readonly port: number;
  readonly cookie: string;
  readonly header: Readonly<Record<string, string>>;
}

function asked(
  port: number,
  path: string,
  headers: RequestOptions["headers"],
  more: RequestOptions = {},
): ClientRequest {
  return httpRequest({ host: "127.0.0.1", port, path, headers, agent: false, ...more });
}

async function answer(
  sent: ClientRequest,
): Promise<{ status: number; headers: IncomingMessage["headers"]; body: string }> {
  const [response] = (await once(sent.end(), "response")) as [IncomingMessage];
  return { status: response.statusCode ?? 0, headers: response.headers, body: await text(response) };
}

/** As a browser does that follows the link. */
async function shown(): Promise<Shown & { readonly url: URL }> {
  const { url: link, header } = await client.call("ports.show", { session, port: 8000 });
  const url = new URL(link);
  const port = Number(url.port);
  const opened = await answer(asked(port, url.pathname, { host: url.host, "sec-fetch-site": "cross-site" }));
  expect(opened).toMatchObject({ status: 200 });
  const [set = ""] = opened.headers["set-cookie"] ?? [];
  expect(set).toMatch(/; Path=\/; HttpOnly; SameSite=Strict$/);
  return { url, host: url.host, port, cookie: set.split(";")[0] ?? "", header: { [header.name]: header.value } };
}

describe("a hostile server behind a port of a session", () => {
  it("is at an origin of its own, which only the one who has a link reaches, and no page of another", async () => {
    const { url, host, port, cookie, header } = await shown();
    expect(host).toMatch(/^p[0-9a-f]{20}\.localhost:\d+$/);
    expect([port, cookie === ""]).not.toContain(service.port);
    const status = async (path: string, headers: RequestOptions["headers"]) =>
      (await answer(asked(port, path, headers))).status;
    expect(await status(url.pathname, { host })).toBe(403);
    expect(await status("/", { host, cookie })).toBe(200);
    expect(await status("/", { host: `127.0.0.1:${port}`, ...header })).toBe(200);
    expect(await status("/", { host })).toBe(401);
    expect(await status("/", { host: `evil.example:${port}`, cookie })).toBe(403);
    expect(await status("/", { host: `127.0.0.1:${port}`, cookie })).toBe(401);
    expect(await status("/", { host, cookie, origin: `http://127.0.0.1:${service.port}` })).toBe(403);
    expect(await status("/", { host, cookie, "sec-fetch-site": "cross-site" })).toBe(403);
    // The service answers nothing of the session at its own origin, and is no way around.
    expect((await service.ask("GET", `/v1/sessions/${session}/ports/8000`)).status).toBe(405);
    const reader = new ServiceClient(transportTo(`http://127.0.0.1:${service.port}`), null);
    await expect(reader.call("ports.show", { session, port: 8000 })).rejects.toMatchObject({ status: 401 });
    await expect(client.call("ports.show", { session, port: 8001 })).rejects.toMatchObject({
      code: "PORT_NOT_DECLARED",
    });
  });

  it("learns no token, cookie or header of Corral's, and is asked as at its own address", async () => {
    const { host, port, cookie } = await shown();
    const headers = {
      host,
      cookie: `x=1; ${cookie}`,
      authorization: `Bearer ${service.token}`,
      referer: `http://${host}/a`,
    };
    const { body } = await answer(asked(port, "/", headers));
    expect(body.toLowerCase()).toContain("host: localhost:8000");
    expect(body).toContain("x=1");
    for (const secret of [service.token, cookie.split("=")[1] ?? "", host, "corral"])
      expect(body).not.toContain(secret);
  });

  it("cannot lead to the service, set Corral's cookie or one for other names, or let other pages read it", async () => {
    const { host, port, cookie } = await shown();
    const redirect = await answer(asked(port, "/redirect", { host, cookie }));
    expect([redirect.status, redirect.headers.location, redirect.headers["set-cookie"]]).toEqual([
      502,
      undefined,
      undefined,
    ]);
    const { headers } = await answer(asked(port, "/cookies", { host, cookie }));
    expect(headers["set-cookie"]).toEqual(["b=2"]);
    expect(headers["access-control-allow-origin"]).toBeUndefined();
    expect(headers["x-frame-options"]).toBe("SAMEORIGIN");
    expect(headers["content-security-policy"]).toContain("frame-ancestors 'self'");
  });

  it("gains nothing by headers without end, no HTTP, two answers to one request, or another protocol", async () => {
    const { host, port, cookie } = await shown();
    for (const path of ["/huge", "/not-http", "/upgrade", "/status"])
      expect(await answer(asked(port, path, { host, cookie }))).toMatchObject({ status: 502 });
    expect(await answer(asked(port, "/smuggled", { host, cookie }))).toMatchObject({ status: 200, body: "ok" });
    const { headers, body } = await answer(asked(port, "/", { host, cookie }));
    expect([headers["x-smuggled"], body.includes("evil")]).toEqual([undefined, false]);
  });

  it("waits for a client that does not read, and ends with it", async () => {
    const { host, port, cookie } = await shown();
    const sent = asked(port, "/endless", { host, cookie });
    const [response] = (await once(sent.end(), "response")) as [IncomingMessage];
    response.pause();
    await expect.poll(() => printedText()).toContain("GET /endless");
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect(await printedText()).not.toContain("SENT");
    sent.destroy();
    await expect.poll(() => printedText()).toContain("STOPPED");
  });

  it("speaks by a WebSocket with its own page alone", async () => {
    const { host, port, cookie } = await shown();
    const key = { "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "13" };
    const open = (headers: RequestOptions["headers"]) =>
      asked(port, "/socket", { host, connection: "Upgrade", upgrade: "websocket", ...key, ...headers });
    const refused = async (headers: RequestOptions["headers"]) => (await answer(open(headers))).status;
    expect(await refused({ cookie, origin: "http://evil.example" })).toBe(403);
    expect(await refused({ cookie, origin: `http://127.0.0.1:${service.port}` })).toBe(403);
    expect(await refused({ cookie })).toBe(403);
    expect(await refused({ origin: `http://${host}` })).toBe(401);
    expect(await refused({ cookie, origin: `http://${host}`, upgrade: "h2c" })).toBe(400);
    const [response, socket, head] = await once(open({ cookie, origin: `http://${host}` }).end(), "upgrade");
    expect(response.headers).toEqual({
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    });
    socket.write("12345");
    expect(head.toString() + (await text(socket))).toBe("first got 12345");
  });
});

describe("a connection to a port through the service", () => {
  it("is only for who may run work, only to a declared port, and passes on bytes as they are, both ways", async () => {
    const address = `http://127.0.0.1:${service.port}`;
    const connection = await connectToPort(address, service.token, { session, port: 8000 });
    connection.write("GET /plain HTTP/1.1\r\nA: b\r\n\r\n");
    expect(await text(connection)).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\n\r\nA: b\n$/s);
    const status = (token: string | null, port = 8000) =>
      connectToPort(address, token, { session, port }).then(
        () => null,
        (error: { status: number; code: string }) => [error.status, error.code],
      );
    expect(await status("wrong")).toEqual([401, "UNAUTHORIZED"]);
    expect(await status(service.token, 8001)).toEqual([422, "PORT_NOT_DECLARED"]);
    // No other request is answered by a connection, whatever it asks for.
    const raw = async (lines: string) => {
      const socket = connect(service.port, "127.0.0.1");
      socket.on("error", () => {}).write(lines);
      return await text(socket).catch(() => "");
    };
    const upgrade = `host: 127.0.0.1:${service.port}\r\nauthorization: Bearer ${service.token}\r\nconnection: upgrade\r\nupgrade: corral-port\r\n`;
    expect(await raw(`GET /v1/runs HTTP/1.1\r\n${upgrade}\r\n`)).toContain("400");
    const path = `/v1/sessions/${session}/ports/8000/connection`;
    expect(await raw(`GET ${path} HTTP/1.1\r\n${upgrade.replace("127.0.0.1", "evil.example")}\r\n`)).toContain("403");
    expect(await raw(`GET ${path} HTTP/1.1\r\n${upgrade}origin: http://evil.example\r\n\r\n`)).toContain("403");
    expect(await raw(`GET ${path} HTTP/1.1\r\n${upgrade}\r\nGET /v1/runs HTTP/1.1\r\n`)).toBe("");
    expect((await service.ask("GET", path)).status).toBe(400);
  });

  it("ends with the session, as the address does at which a port is shown", async () => {
    const { id } = await client.call("sessions.open", { worker: "w" });
    const port = 8000;
    const env = { CODE: HOSTILE };
    await client.call("sessions.start", { session: id, command: 'exec python3 -c "$CODE"', env });
    await expect
      .poll(async () => (await client.call("ports.list", { session: id })).ports)
      .toEqual([{ port, name: "web", isAllowed: true, isListening: true, address: null }]);
    const { address, header } = await client.call("ports.show", { session: id, port });
    expect((await client.call("ports.list", { session: id })).ports[0]?.address).toBe(address);
    const at = Number(new URL(address).port);
    const headers = { host: `127.0.0.1:${at}`, [header.name]: header.value };
    expect(await answer(asked(at, "/", headers))).toMatchObject({ status: 200 });
    const connection = await connectToPort(`http://127.0.0.1:${service.port}`, service.token, { session: id, port });
    const closed = once(connection.resume(), "close");
    await client.call("sessions.close", { session: id });
    await closed;
    await expect(once(asked(at, "/", headers).end(), "response")).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});
