import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, expect, it } from "vitest";
import { parseAsItComes } from "../../../src/platform/http.ts";
import type { Refusals } from "../../../src/serve/http/fault.ts";
import { ListenError, type Listener, listen } from "../../../src/serve/http/listener.ts";

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

async function listening(host: string, port: number): Promise<Listener> {
  const listener = await listen({ kind: "tcp", host, port }, (_, response) => response.end(), {} as Refusals);
  open.push(() => listener.close(0));
  return listener;
}

/** Another program that would share its port: the port, or the code of the error. */
async function other(host: string, port: number): Promise<number | string> {
  const server = createServer().listen({ host, port, reusePort: true });
  open.push(() => new Promise((resolve) => server.close(resolve)));
  const error = await once(server, "listening").then(
    () => null,
    (thrown: NodeJS.ErrnoException) => String(thrown.code),
  );
  return error ?? (server.address() as AddressInfo).port;
}

it.each(["127.0.0.1", "::1"])(
  "a port at %s that a service or another program has is refused, also if that would share it",
  async (host) => {
    const { address } = await listening(host, 0);
    const port = address.kind === "tcp" ? address.port : 0;
    await expect(listening(host, port)).rejects.toThrow(ListenError);
    const taken = await other(host, 0);
    await expect(listening(host, Number(taken))).rejects.toThrow("EADDRINUSE");
  },
);

it("takes the content of an upload as it comes, and anything else in small pieces", async () => {
  const pieces: Record<string, number[]> = {};
  const listener = await listen(
    { kind: "tcp", host: "127.0.0.1", port: 0 },
    (request, response) => {
      const { url = "" } = request;
      if (url.startsWith("/upload")) parseAsItComes(request);
      const of: number[] = [];
      pieces[url] = of;
      request.on("data", ({ length }: Buffer) => of.push(length));
      request.once("end", () => response.end(`${url}\n`));
    },
    {} as Refusals,
  );
  open.push(() => listener.close(0));
  const { address } = listener;
  const socket = connect(address.kind === "tcp" ? address.port : 0, "127.0.0.1");
  const head = (url: string, more: string): string => `POST ${url} HTTP/1.1\r\nhost: localhost\r\n${more}\r\n\r\n`;
  const length = 1024 ** 2;
  const content = "x".repeat(length);
  const counted = `content-length: ${length}`;
  const chunked = `${length.toString(16)}\r\n${content}\r\n0\r\n\r\n`;
  socket.write(`${head("/upload", counted)}${content}${head("/other", counted)}${content}`);
  socket.end(`${head("/upload-chunked", "transfer-encoding: chunked")}${chunked}${head("/last", "connection: close")}`);
  const answer = await text(socket);
  expect(answer.match(/^\/\S+$/gm)).toEqual(["/upload", "/other", "/upload-chunked", "/last"]);
  // The first piece came perhaps with the last one of the request before.
  const largest = (url: string): number => Math.max(...(pieces[url]?.slice(1) ?? []));
  expect(pieces["/other"]?.length).toBeGreaterThan(200);
  expect(largest("/other")).toBeLessThanOrEqual(4096);
  expect(largest("/upload")).toBeGreaterThan(16 * 1024);
  expect(largest("/upload-chunked")).toBeGreaterThan(16 * 1024);
});
