import { once } from "node:events";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connectedTo, type Served, served, TOKEN } from "./served.ts";

let s: Served;
let silent: Socket[] = [];
beforeEach(async () => {
  s = await served({ idleMs: 60_000, goneMs: 60_000 });
});
afterEach(async () => {
  for (const socket of silent) socket.destroy();
  silent = [];
  await s[Symbol.asyncDispose]();
});

async function silentOnes(count: number): Promise<void> {
  const port = Number(new URL(s.server.url).port);
  for (let index = 0; index < count; index += 1) {
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    socket.resume();
    silent.push(socket);
    await once(socket, "connect");
  }
}

describe("connections that show no token", () => {
  it("shut nobody out, and give way to others, the oldest first", async () => {
    const { client } = await connectedTo(s.server.url, TOKEN, true);
    // One that has shown its token, and has a request open, stays while they come.
    const command = "echo > /out/begun; until [ -e /out/ends ]; do sleep 0.1; done; echo done";
    const running = client.callTool({ name: "exec", arguments: { command } });
    await expect.poll(() => existsSync(join(s.project.dir, "out/begun"))).toBe(true);
    await silentOnes(300);
    const other = await connectedTo(s.server.url, TOKEN, true);
    expect((await other.client.listTools()).tools.length).toBeGreaterThan(0);
    await expect.poll(() => silent.filter(({ closed }) => closed).length).toBeGreaterThanOrEqual(172);
    expect(silent.slice(0, 100).every(({ closed }) => closed)).toBe(true);
    expect(silent.slice(-100).some(({ closed }) => closed)).toBe(false);
    await writeFile(join(s.project.dir, "out/ends"), "");
    expect(JSON.stringify(await running)).toContain("done");
  });

  it("are closed when they say nothing for long", async () => {
    await silentOnes(1);
    await expect.poll(() => silent[0]?.closed).toBe(true);
  });
});

/** What a request with these headers is answered with, and with this much of its body. */
async function raw(headers: readonly string[], body: string, waits = true): Promise<string> {
  const { port } = new URL(s.server.url);
  const socket = connect(Number(port), "127.0.0.1").setEncoding("utf8");
  silent.push(socket);
  const own = [`Host: 127.0.0.1:${port}`, `Authorization: Bearer ${TOKEN}`, "Content-Type: application/json"];
  socket.write(`POST /mcp HTTP/1.1\r\n${[...own, ...headers].join("\r\n")}\r\n\r\n${body}`);
  if (waits) return String((await once(socket, "data"))[0]).split("\r\n")[0] ?? "";
  await once(socket, "connect");
  await new Promise((resolve) => setTimeout(resolve, 100));
  socket.destroy();
  return "";
}

describe("a request", () => {
  it("is refused with two of a header that says where it goes, or who sends it", async () => {
    const length = "Content-Length: 2";
    expect(await raw([length], "{}")).toContain("400");
    for (const second of [
      "Host: evil.example",
      "HOST: 127.0.0.1",
      `Authorization: Bearer ${TOKEN}`,
      "Content-Type: a/b",
    ])
      expect(await raw([second, length], "{}"), second).toContain("403");
    expect(
      await raw(["Origin: http://evil.example", `Origin: ${new URL(s.server.url).origin}`, length], "{}"),
    ).toContain("403");
  });

  it("that breaks off is no trouble of the server", async () => {
    await raw(["Content-Length: 1000"], '{"jsonrpc":', false);
    const { client } = await connectedTo(s.server.url, TOKEN, true);
    await client.listTools();
    expect(s.troubles).toEqual([]);
  });
});
