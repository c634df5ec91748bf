import { once } from "node:events";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { openEgress } from "../../src/egress/egress.ts";
import { Meter } from "../../src/egress/traffic/traffic.ts";
import { ask, sendRaw } from "./asked.ts";
import { cellSide, LOOPBACK } from "./cell-side.ts";
import { openedByTests } from "./opened.ts";
import { httpServer, tcpServer } from "./servers.ts";

const open = openedByTests();

async function echoing() {
  const tcp = await open(tcpServer((socket) => socket.pipe(socket)));
  const web = await open(
    httpServer((request, response) => {
      let length = 0;
      request.on("data", (piece: Buffer) => {
        length += piece.length;
      });
      request.on("end", () => response.end(request.url === "/big" ? Buffer.alloc(100_000) : String(length)));
    }),
  );
  const allow = [
    { to: `a.test:${tcp.port}`, ...LOOPBACK },
    { to: `b.test:${web.port}`, tls: false as const, ...LOOPBACK },
  ];
  return { allow, a: ["a.test", tcp.port] as const, b: ["b.test", web.port] as const };
}

describe("the budget of a cell", () => {
  it("for uploads and downloads counts bodies, heads and tunnels together, and ends them", async () => {
    const { allow, a, b } = await echoing();
    const cell = await open(cellSide({ network: { allow, limits: { uploadBytes: 100_000 } } }));
    expect(await ask(cell, b, { method: "POST", body: "x".repeat(40_000) })).toMatchObject({ body: "40000" });
    expect(await sendRaw(cell, a, Buffer.alloc(70_000, 1))).toBe("");
    expect(await ask(cell, b, { method: "POST", body: "x".repeat(70_000) })).toMatchObject({ status: 429 });
    const [requests, tunnels] = cell.egress.report().allowed;
    expect(requests).toMatchObject({ to: b.join(":"), down: 5 });
    // Two heads, of which the second one's body found no room.
    expect(requests?.up).toBeGreaterThan(40_000 + 2 * 50);
    expect(requests?.up).toBeLessThan(40_000 + 2 * 200);
    expect(tunnels).toMatchObject({ up: 0 });
    expect(cell.denied).toMatchObject([{ reason: "limit" }, { reason: "limit" }]);
    cell.egress.replace({ allow, limits: { downloadBytes: 50_000 } });
    await expect(ask(cell, b, { path: "/big" })).rejects.toThrow();
  });

  it("for uploads ends what a client sends in paths and in headers, one request after another", async () => {
    const { allow, b } = await echoing();
    const cell = await open(cellSide({ network: { allow, limits: { uploadBytes: 5000 } } }));
    const statuses = [];
    for (const path of ["/a", "/b", "/c"]) statuses.push((await ask(cell, b, { path: path.padEnd(2000, "x") })).status);
    expect(statuses).toEqual([200, 200, 429]);
  });

  it("for requests is that of a caller too", async () => {
    const { allow, b } = await echoing();
    const caller = new Meter({ requests: 3 });
    const [one, two] = [
      await open(cellSide({ network: { allow }, parent: caller })),
      await open(cellSide({ network: { allow, limits: { requests: 2 } }, parent: caller })),
    ];
    const statuses = [];
    for (const cell of [two, two, two, one, one]) statuses.push((await ask(cell, b)).status);
    expect(statuses).toEqual([200, 200, 429, 200, 429]);
  });

  it("for connections at once is given back", async () => {
    const { allow, a, b } = await echoing();
    const caller = new Meter();
    const cell = await open(cellSide({ network: { allow, limits: { connections: 2 } }, parent: caller }));
    const clients = [await cell.connect(...a), await cell.connect(...a)];
    await expect.poll(() => caller.used.connections).toBe(2);
    expect(await sendRaw(cell, b, "")).toMatch(/^HTTP\/1.1 429[\s\S]*Too many connections at once/);
    for (const client of clients) client.destroy();
    await expect.poll(() => caller.used.connections).toBe(0);
    expect(await ask(cell, b)).toMatchObject({ status: 200 });
  });

  it("is 64 connections if nothing is said; a client that says nothing holds one", async () => {
    const { allow, b } = await echoing();
    const cell = await open(cellSide({ network: { allow } }));
    for (let count = 0; count < 64; count += 1) await cell.connect(...b);
    await expect.poll(async () => (await sendRaw(cell, b, "")).slice(0, 12)).toBe("HTTP/1.1 429");
  });
});

describe("the report", () => {
  it("is bounded in lines, and counts what it has no line for", async () => {
    const cell = await open(cellSide({ network: { allow: [{ to: "a.test:443" }] } }));
    const line = (host: string) => `CONNECT ${host}:443 HTTP/1.1\r\n\r\n`;
    for (let count = 0; count < 230; count += 1) await sendRaw(cell, [null, 3128], line(`h${count}.test`));
    for (let count = 0; count < 3; count += 1) await sendRaw(cell, [null, 3128], line("h9.test"));
    const { denied, unlisted } = cell.egress.report();
    expect(denied).toHaveLength(200);
    expect(denied[0]).toMatchObject({ to: "h9.test:443", count: 4, reason: "host" });
    expect(unlisted).toBe(30);
    expect(cell.denied).toHaveLength(230);
  });
});

describe("a network that is replaced", () => {
  it("closes what it no longer allows, and nothing else", async () => {
    const { allow, a } = await echoing();
    const other = await open(tcpServer((socket) => socket.pipe(socket)));
    const both = [...allow, { to: `c.test:${other.port}`, ...LOOPBACK }];
    const cell = await open(cellSide({ network: { allow: both } }));
    const [kept, closed] = [await cell.connect("c.test", other.port), await cell.connect(...a)];
    for (const client of [kept, closed]) {
      client.write("\x01");
      await once(client, "data");
    }
    cell.egress.replace({ allow: both.slice(1) });
    await once(closed, "end");
    kept.write("\x02");
    expect(String((await once(kept, "data"))[0])).toBe("\x02");
    // The same host at other addresses.
    cell.egress.replace({ allow: [{ to: `c.test:${other.port}`, addresses: ["10.0.0.0/8"] }] });
    await once(kept, "end");
    cell.egress.replace(false);
    expect(await sendRaw(cell, a, "\x01")).toMatch(/^HTTP\/1.1 403/);
  });

  it("ends a request that is under way, and one whose host is being dialled", async () => {
    const slow = await open(httpServer((_, response) => response.write("begin")));
    const network = { allow: [{ to: `b.test:${slow.port}`, tls: false as const, ...LOOPBACK }] };
    let found: (addresses: string[]) => void = () => {};
    let lookups = 0;
    const resolve = () =>
      new Promise<string[]>((done) => {
        found = done;
        lookups += 1;
      });
    const cell = await open(cellSide({ network, resolve }));
    const under = ask(cell, ["b.test", slow.port]);
    await expect
      .poll(() => {
        found(["127.0.0.1"]);
        return slow.connections();
      })
      .toBe(1);
    cell.egress.replace({ allow: [{ ...network.allow[0], to: "x.test:1" }] });
    await expect(under).rejects.toThrow();
    cell.egress.replace(network);
    const dialled = ask(cell, ["b.test", slow.port]);
    await expect.poll(() => lookups).toBe(2);
    cell.egress.replace({ allow: [{ ...network.allow[0], to: "x.test:1" }] });
    found(["127.0.0.1"]);
    await expect(dialled).rejects.toThrow();
    expect(slow.connections()).toBe(1);
    // The request is still allowed, but not at the address that is being dialled.
    cell.egress.replace(network);
    const elsewhere = ask(cell, ["b.test", slow.port]);
    await expect.poll(() => lookups).toBe(3);
    cell.egress.replace({ allow: [{ ...network.allow[0], to: `b.test:${slow.port}`, addresses: ["10.0.0.0/8"] }] });
    found(["127.0.0.1"]);
    expect(await elsewhere).toMatchObject({ status: 403 });
  });
});

describe("an egress that is disposed of", () => {
  it("closes every connection at once, whatever it is doing", async () => {
    const { allow, a, b } = await echoing();
    const silent = await open(tcpServer(() => {}));
    const network = { allow: [...allow, { to: `s.test:${silent.port}`, ...LOOPBACK }, { to: "slow.test:1" }] };
    const resolve = async (host: string) => (host === "slow.test" ? new Promise<string[]>(() => {}) : ["127.0.0.1"]);
    const cell = await open(cellSide({ network, resolve }));
    const clients = [
      ...(await Promise.all([cell.connect(...a), cell.connect(...b), cell.connect("s.test", silent.port)])),
      ...(await Promise.all([cell.connect("slow.test", 1), cell.connect(null, 3128), cell.connect(...b)])),
    ];
    for (const client of clients) client.write("\x01");
    clients[5]?.write("GET / HTTP/1.1\r\n");
    await new Promise((done) => setTimeout(done, 100));
    const from = performance.now();
    const ended = Promise.all(clients.map((client) => text(client).catch(() => "")));
    await cell.egress[Symbol.asyncDispose]();
    await ended;
    // Far less than any of them would take, and enough for a busy machine.
    expect(performance.now() - from).toBeLessThan(10_000);
    expect(await text(await cell.connect(...b)).catch(() => "")).toBe("");
  });

  it("leaves nothing that keeps a process alive", async () => {
    const before = process.getActiveResourcesInfo().filter((name) => name !== "Immediate").length;
    const egress = openEgress({ network: { allow: [] }, resolve: async () => [], secretOf: async () => "" });
    await egress[Symbol.asyncDispose]();
    expect(process.getActiveResourcesInfo().filter((name) => name !== "Immediate").length).toBeLessThanOrEqual(before);
  });
});
