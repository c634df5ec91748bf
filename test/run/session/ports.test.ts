import { once } from "node:events";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { listeningIn } from "../../../src/run/session/session-ports.ts";
import { openHandySession, type SessionFixture } from "./session-fixture.ts";

const never = new AbortController().signal;
let s: SessionFixture;

/** Answers each connection with its port and what it was sent, when its client has sent all. */
const SERVERS = `
import socket, threading, sys
def serve(family, address, port):
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(64)
    def answer(client):
        data = b''
        while piece := client.recv(65536): data += piece
        client.sendall(b'%d %d ' % (port, len(data)) + data[:8])
        client.close()
    def take():
        while True: threading.Thread(target=answer, args=(server.accept()[0],)).start()
    threading.Thread(target=take).start()
serve(socket.AF_INET, '127.0.0.1', 8000)
serve(socket.AF_INET, '0.0.0.0', 8001)
serve(socket.AF_INET, '127.0.0.2', 8002)
serve(socket.AF_INET, '127.0.0.1', 8003)
try: serve(socket.AF_INET6, '::', 8004)
except OSError: serve(socket.AF_INET, '127.0.0.1', 8004)
print('up', flush=True)
`;

beforeAll(async () => {
  s = await openHandySession({
    image: "corral/python",
    ports: { web: 8000, all: 8001, other: 8002, six: 8004, none: 8005 },
    limits: { pids: 128, memory: "256m" },
  });
});

afterAll(async () => {
  await s[Symbol.asyncDispose]();
});

async function asked(port: number, sent = "hello"): Promise<string> {
  const connection = await s.session.ports.connect(port, never);
  connection.end(sent);
  return await text(connection);
}

describe("the ports of a session", () => {
  it("are those that its worker declares, and what listens is reached in its cell alone", async () => {
    const { ports } = s.session;
    const before = await ports.list(never);
    expect(before).toHaveLength(5);
    expect(before.some(({ isListening }) => isListening)).toBe(false);
    await expect(ports.connect(8000, never)).rejects.toMatchObject({ code: "NOTHING_LISTENS" });
    const server = await s.session.start(
      { command: 'exec python3 -c "$CODE"', env: { CODE: SERVERS }, hasInput: false, isBackground: true },
      false,
      never,
    );
    await expect.poll(() => server.output.end).toBe(3);
    expect(await ports.list(never)).toEqual([
      { port: 8000, name: "web", isAllowed: true, isListening: true },
      { port: 8001, name: "all", isAllowed: true, isListening: true },
      // At an address at which Corral could listen itself.
      { port: 8002, name: "other", isAllowed: true, isListening: false },
      { port: 8003, name: null, isAllowed: false, isListening: true },
      { port: 8004, name: "six", isAllowed: true, isListening: true },
      { port: 8005, name: "none", isAllowed: true, isListening: false },
    ]);
    expect(await Promise.all([8000, 8001, 8004].map((port) => asked(port)))).toEqual([
      "8000 5 hello",
      "8001 5 hello",
      "8004 5 hello",
    ]);
    for (const port of [8002, 8005]) await expect(asked(port)).rejects.toMatchObject({ code: "NOTHING_LISTENS" });
    await expect(asked(8003)).rejects.toMatchObject({ code: "PORT_NOT_DECLARED" });
    ports.allow([8003]);
    expect(await asked(8003)).toBe("8003 5 hello");
    expect(await asked(8000, "x".repeat(5_000_000))).toBe("8000 5000000 xxxxxxxx");
  });

  it("have few connections at once, each with an end of its own, which leaves nothing in the cell", async () => {
    const { ports } = s.session;
    const open = await Promise.all(Array.from({ length: 12 }, () => ports.connect(8000, never)));
    await expect(ports.connect(8000, never)).rejects.toMatchObject({ code: "TOO_MANY_CONNECTIONS" });
    const relays = async () => (await s.processes()).filter((line) => line.includes("nc 127.0.0.1")).length;
    await expect.poll(relays).toBe(12);
    for (const one of open.slice(1)) one.destroy();
    await expect.poll(relays).toBe(1);
    const last = open[0] as Duplex;
    last.end("12345678");
    expect(await text(last)).toBe("8000 8 12345678");
    expect(await asked(8000)).toBe("8000 5 hello");
    await s.session.pause(true);
    await expect(ports.connect(8000, never)).rejects.toMatchObject({ code: "SESSION_PAUSED" });
    await s.session.pause(false);
    const left = await ports.connect(8000, never);
    const closed = once(left, "close");
    await s.close();
    await closed;
    await expect(ports.connect(8000, never)).rejects.toMatchObject({ code: "NOTHING_LISTENS" });
  });
});

describe("the kernel's table of sockets", () => {
  it("has the ports that listen where programs of this cell can ask", () => {
    const line = (address: string, state: string) =>
      `   0: ${address} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0`;
    const table = [
      "  sl  local_address rem_address   st",
      line("0100007F:1F40", "0A"),
      line("0158587F:01BB", "0A"),
      line("0100007F:1F41", "01"),
    ];
    const six = "   0: 00000000000000000000000000000000:1F44 00000000000000000000000000000000:0000 0A 00000000";
    expect([...listeningIn([...table, six].join("\n"))]).toEqual([8000, 8004]);
  });
});
