import { writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { textOf } from "../mcp-project.ts";
import { connectedTo, type Served, served, TOKEN } from "./served.ts";

let s: Served;
beforeEach(async () => {
  s = await served({ idleMs: 60_000, goneMs: 60_000 });
});
afterEach(() => s[Symbol.asyncDispose]());

describe.each([false, true])("the places of clients (2026-07-28: %s)", (modern) => {
  it("let a file be read while more commands than there are places wait behind a long one", async () => {
    const { client } = await connectedTo(s.server.url, TOKEN, modern);
    const stop = new AbortController();
    const exec = (command: string) =>
      client.callTool({ name: "exec", arguments: { command } }, { signal: stop.signal }).then(textOf, () => "stopped");
    const long = exec("echo > /out/begun; sleep 30");
    const behind = Array.from({ length: 40 }, () => exec("sleep 30"));
    const read = async () => textOf(await client.callTool({ name: "list_files", arguments: { path: "/out" } }));
    await expect.poll(read).toContain("/out/begun");
    stop.abort(new Error("enough"));
    expect(await Promise.all([long, ...behind])).toEqual(Array(41).fill("stopped"));
    // What was cancelled before its turn came holds nobody up either.
    expect(textOf(await client.callTool({ name: "exec", arguments: { command: "echo next" } }))).toBe("next\n");
  });
});

/** Reads an answer at last: true where all of it comes. */
async function isWhole(socket: Socket): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  let bytes = 0;
  socket.on("data", (chunk) => {
    bytes += chunk.length;
    if (bytes > LARGE) resolve(true);
  });
  socket.on("close", () => resolve(false)).resume();
  return await promise;
}

const LARGE = 5 * 1024 ** 2;

describe("answers over HTTP that nobody reads", () => {
  it("are given up, the oldest first, and others are served", async () => {
    const image = Buffer.alloc(LARGE);
    Buffer.from("89504e470d0a1a0a0000000d49484452", "hex").copy(image);
    await writeFile(join(s.project.dir, "docs/large.png"), image);
    const { hostname, port } = new URL(s.server.url);
    const _meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "deaf", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const params = { name: "read_file", arguments: { path: "/docs/large.png" }, _meta };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
    const lines = [
      "POST /mcp HTTP/1.1",
      `host: ${hostname}:${port}`,
      `authorization: Bearer ${TOKEN}`,
      "accept: application/json, text/event-stream",
      "content-type: application/json",
      "mcp-protocol-version: 2026-07-28",
      "mcp-method: tools/call",
      "mcp-name: read_file",
      `content-length: ${body.length}`,
    ];
    const sockets: Socket[] = [];
    for (let index = 0; index < 14; index += 1) {
      const socket = connect(Number(port), hostname);
      socket.on("error", () => {}).pause();
      socket.write(`${lines.join("\r\n")}\r\n\r\n${body}`);
      sockets.push(socket);
      await setTimeout(50);
    }
    await setTimeout(4500);
    const whole = await Promise.all(sockets.map(isWhole));
    // Those that came while others still stood there; which these are depends on how quickly each was read from the disk.
    expect(whole.filter(Boolean)).toHaveLength(8);
    const { client } = await connectedTo(s.server.url, TOKEN, true);
    expect(textOf(await client.callTool({ name: "list_files", arguments: { path: "/" } }))).toContain("/docs/");
    for (const socket of sockets) socket.destroy();
    // Whoever reads is given up by nobody, however much it asks for at once.
    const read = { name: "read_file", arguments: { path: "/docs/large.png" } };
    const images = await Promise.all(Array.from({ length: 10 }, () => client.callTool(read)));
    expect(images.map(({ content }) => content.length)).toEqual(Array(10).fill(2));
  });
});
