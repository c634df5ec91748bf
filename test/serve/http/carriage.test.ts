import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, expect, it } from "vitest";
import { bareJson } from "../../../src/serve/http/answer.ts";
import { Carriage } from "../../../src/serve/http/carriage.ts";

const MIB = 1024 ** 2;
const CONTENT = randomBytes(9 * MIB + 5);
const STALL_MS = 300;

const dir = fs.mkdtempSync(join(tmpdir(), "corral-carriage-"));
afterAll(() => fs.rmSync(dir, { recursive: true, force: true }));

const servers: ReturnType<typeof createServer>[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

/** A pipe whose other end another program has, as a cell has it. */
function pipeOf(script: (path: string) => string): { readonly fd: number; readonly other: ChildProcess } {
  const path = join(dir, `pipe-${randomBytes(6).toString("hex")}`);
  execFileSync("mkfifo", [path]);
  const other = spawn("sh", ["-c", script(path)], { stdio: ["ignore", "pipe", "inherit"] });
  const reads = script(path).includes(`> ${path}`);
  return { fd: fs.openSync(path, reads ? fs.constants.O_RDONLY : fs.constants.O_WRONLY), other };
}

/** Carries each request with `act`, and says how that ended. */
async function served(
  act: (carriage: Carriage, response: ServerResponse) => Promise<unknown>,
  signal = new AbortController().signal,
): Promise<{ readonly port: number; readonly ended: Promise<unknown> }> {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const server = createServer(async (request, response) => {
    request.on("error", () => {});
    response.on("error", () => {});
    resolve(await act(new Carriage(request, response, signal, { stallMs: STALL_MS }), response));
  });
  servers.push(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { port: (server.address() as AddressInfo).port, ended: promise };
}

/** A request of so many bytes, of which some are sent. */
async function sent(port: number, bytes: number, piece: Buffer): Promise<Socket> {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  socket.write(`PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: ${bytes}\r\n\r\n`);
  await new Promise((resolve) => socket.write(piece, resolve));
  return socket;
}

const body = (fd: number) => async (carriage: Carriage) => {
  const ended = await carriage.bodyInto(fd, carriage.bodyBytes ?? 0);
  fs.closeSync(fd);
  carriage.answer(bareJson("200 OK", { ended }));
  return ended;
};

const content =
  (fd: number, bytes = CONTENT.length) =>
  async (carriage: Carriage, response: ServerResponse) => {
    response.writeHead(200, { "content-length": String(bytes), connection: "close" });
    await carriage.flushed();
    const ended = carriage.contentFrom(fd, bytes);
    fs.closeSync(fd);
    return await ended;
  };

it("moves a body to the byte, answers it, and takes none that is small or has no length", async () => {
  const { fd, other } = pipeOf((path) => `cat < ${path}`);
  const { port } = await served(body(fd));
  const arrived = buffer(other.stdout as NonNullable<typeof other.stdout>);
  const asked = httpRequest({ port, method: "PUT", headers: { "content-length": CONTENT.length } }).end(CONTENT);
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  expect([response.statusCode, (await buffer(response)).toString()]).toEqual([200, '{"ended":"whole"}']);
  expect((await arrived).equals(CONTENT)).toBe(true);
  const lengths: unknown[] = [];
  const { port: second } = await served(async ({ bodyBytes }, answer) => {
    lengths.push(bodyBytes);
    answer.writeHead(200, { connection: "close" }).end();
  });
  for (const headers of [{ "content-length": 4 * MIB - 1 }, { "transfer-encoding": "chunked" }, {}]) {
    const small = httpRequest({ port: second, method: "PUT", headers }).on("error", () => {});
    small.end(headers["content-length"] === undefined ? "" : CONTENT.subarray(0, headers["content-length"]));
    await once(small, "response");
  }
  expect(lengths).toEqual([null, null, null]);
});

it("says that a body was cut, also if its client sends nothing more, and not while its reader is slow", async () => {
  for (const leaves of [true, false]) {
    const { fd, other } = pipeOf((path) => `cat < ${path}`);
    other.stdout?.resume();
    const { port, ended } = await served(body(fd));
    const socket = await sent(port, CONTENT.length, CONTENT.subarray(0, 2 * MIB));
    if (leaves) socket.destroy();
    expect(await ended).toBe("cut");
    socket.destroy();
  }
  const { fd, other } = pipeOf((path) => `exec < ${path}; sleep ${(3 * STALL_MS) / 1000}; cat`);
  other.stdout?.resume();
  const { port, ended } = await served(body(fd));
  const socket = await sent(port, CONTENT.length, CONTENT);
  expect(await ended).toBe("whole");
  socket.destroy();
});

it("answers a client that still sends when the pipe takes no more", async () => {
  const { fd } = pipeOf((path) => `head -c 100 < ${path}`);
  const { port, ended } = await served(body(fd));
  const asked = httpRequest({ port, method: "PUT", headers: { "content-length": CONTENT.length } });
  asked.on("error", () => {}).end(CONTENT);
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  expect((await buffer(response)).toString()).toBe('{"ended":"closed"}');
  expect(await ended).toBe("closed");
});

it("moves the content of an answer to the byte; one that ends before is no whole answer", async () => {
  const file = join(dir, "content");
  fs.writeFileSync(file, CONTENT);
  const whole = pipeOf((path) => `cat ${file} > ${path}`);
  const first = await served(content(whole.fd));
  const answer = (await once(httpRequest({ port: first.port }).end(), "response")) as [IncomingMessage];
  expect((await buffer(answer[0])).equals(CONTENT)).toBe(true);
  expect(await first.ended).toBe("whole");
  const short = pipeOf((path) => `head -c 1000 ${file} > ${path}`);
  const second = await served(content(short.fd));
  const [cut] = (await once(httpRequest({ port: second.port }).end(), "response")) as [IncomingMessage];
  await expect(buffer(cut)).rejects.toThrow("aborted");
  expect(await second.ended).toBe("cut");
});

it("leaves a client that does not read, at the end of its time or when it is told to, and not one that waits for the cell", async () => {
  const endless = pipeOf((path) => `cat /dev/zero > ${path}`);
  const unread = await served(content(endless.fd, 1024 * MIB));
  const socket = connect(unread.port, "127.0.0.1").on("error", () => {});
  socket.pause().write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
  expect(await unread.ended).toBe("cut");
  socket.destroy();
  const slow = pipeOf((path) => `(sleep ${(3 * STALL_MS) / 1000}; head -c ${5 * MIB} /dev/zero) > ${path}`);
  const waited = await served(content(slow.fd, 5 * MIB));
  const [late] = (await once(httpRequest({ port: waited.port }).end(), "response")) as [IncomingMessage];
  expect((await buffer(late)).length).toBe(5 * MIB);
  const stop = new AbortController();
  const again = pipeOf((path) => `cat /dev/zero > ${path}`);
  const stopped = await served(content(again.fd, 1024 * MIB), stop.signal);
  const [ending] = (await once(httpRequest({ port: stopped.port }).end(), "response")) as [IncomingMessage];
  ending.resume().on("error", () => {});
  stop.abort();
  expect(await stopped.ended).toBe("cut");
});
