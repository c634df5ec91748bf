import { once } from "node:events";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, it } from "vitest";
import { type CellSide, cellSide, LOOPBACK } from "./cell-side.ts";
import { tcpServer } from "./servers.ts";

const opened: AsyncDisposable[] = [];
afterEach(async () => {
  for (const each of opened.splice(0)) await each[Symbol.asyncDispose]();
});

async function serverOf(onConnection: (socket: Socket) => void): Promise<number> {
  const server = await tcpServer(onConnection);
  opened.push(server);
  return server.port;
}

function cellFor(port: number): CellSide {
  const cell = cellSide({ network: { allow: [{ to: `db.test:${port}`, ...LOOPBACK }] } });
  opened.push(cell);
  return cell;
}

describe("a tunnel", () => {
  it("lets the server speak first, and keeps half-closed connections", async () => {
    const port = await serverOf(async (socket) => {
      socket.write("hello\n");
      const said = await text(socket);
      socket.end(`you said ${said}`);
    });
    const cell = cellFor(port);
    const client = await cell.connect("db.test", port);
    const [greeting] = (await once(client, "data")) as [Buffer];
    expect(greeting.toString()).toBe("hello\n");
    client.end("\x01\x02");
    expect(await text(client)).toBe("you said \x01\x02");
    expect(cell.egress.report()).toEqual({
      allowed: [{ to: `db.test:${port}`, connections: 1, requests: 0, up: 2, down: 17 }],
      denied: [],
      unlisted: 0,
    });
  });

  it("passes a text without the end of its line when its client has ended, unless a server could take it for a request", async () => {
    const port = await serverOf(async (socket) => void socket.end(`you said ${await text(socket).catch(() => "")}`));
    const cell = cellFor(port);
    const client = await cell.connect("db.test", port);
    client.end("hello");
    expect(await text(client)).toBe("you said hello");
    const asking = await cell.connect("db.test", port);
    asking.end("GET /");
    expect(await text(asking)).toBe("");
    expect(cell.denied).toMatchObject([{ reason: "malformed" }]);
  });

  it("to a host that no rule names is closed without looking the name up", async () => {
    const cell = cellFor(1);
    const client = await cell.connect("other.test", 1);
    expect(await text(client)).toMatch(/^HTTP\/1.1 403 [\s\S]*other.test:1 is not allowed. Allowed: db.test:1/);
    expect(cell.lookups).toEqual([]);
    expect(cell.denied).toMatchObject([{ to: "other.test:1", reason: "host", count: 1 }]);
  });
});
