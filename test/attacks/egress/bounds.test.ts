import type { Duplex } from "node:stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunResult } from "../../../src/index.ts";
import type { AllowedNetwork, NetworkLimits } from "../../../src/sandbox/network/rule.ts";
import { openProject, type ProjectFixture, python } from "../../run/project-fixture.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { countingResolver } from "./counting-resolver.ts";
import { environmentWith, runWith } from "./in-cell.ts";
import { openSites, type Site, type Sites } from "./sites.ts";

/* Floods. The watch over the loop (test/tiers/watched-loop.ts) looks at each of these tests. */

/** Opens `count` connections to a place, sends `text` on each, and says how many got an answer while all were open. */
const FLOOD = `
import json, select, socket, sys, time
asked = json.load(sys.stdin)
sockets, refused = [], 0
for n in range(asked["count"]):
    s = socket.socket()
    try:
        s.settimeout(5); s.connect((asked["host"], asked["port"]))
        s.setblocking(False)
        if asked.get("text"): s.send((asked["text"] % n if "%d" in asked["text"] else asked["text"]).encode())
        sockets.append(s)
    except OSError: refused += 1
    if asked.get("close"):
        if asked["close"] == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
        s.close(); sockets.clear()
deadline, answered, closed = time.monotonic() + asked.get("seconds", 30), set(), set()
poll = select.epoll()
for s in sockets: poll.register(s, select.EPOLLIN)
by_fd = {s.fileno(): s for s in sockets}
while sockets and time.monotonic() < deadline and len(answered | closed) < len(sockets):
    for fd, event in poll.poll(0.5):
        if asked.get("deaf"): time.sleep(0.2); break
        try: data = by_fd[fd].recv(65536)
        except OSError: data = b""
        if data[:1] == b"x": answered.add(fd)
        elif data: pass
        else: closed.add(fd); poll.unregister(fd)
print(json.dumps({"answered": len(answered), "closed": len(closed), "refused": refused, "open": len(sockets) - len(closed)}))`;

let sites: Sites;
let project: ProjectFixture;
let site: Site;

beforeAll(async () => {
  sites = openSites();
  site = await sites.open("site", {
    ports: {
      7000: { kind: "echo" },
      7001: { kind: "bytes", talk: endless },
      7002: { kind: "bytes", talk: (socket) => socket.resume() },
      8080: { kind: "http" },
    },
  });
});

afterAll(() => sites[Symbol.asyncDispose]());

function endless(socket: Duplex): void {
  const piece = Buffer.alloc(65_536, "x");
  const more = (): void => {
    while (!socket.destroyed && socket.write(piece));
  };
  socket.on("drain", more);
  more();
}

async function flooded(input: Record<string, unknown>, limits?: NetworkLimits): Promise<RunResult> {
  const addresses = [`${site.address}/32`];
  const network: AllowedNetwork = {
    allow: [
      ...[7000, 7001, 7002].map((port) => ({ to: `site.test:${port}`, addresses })),
      { to: "site.test:8080", tls: false, addresses },
      { to: "*.wild.test:7000" },
    ],
    ...(limits && { limits }),
  };
  const environment = environmentWith(project, { resolver: countingResolver({ "site.test": [site.address] }) });
  const result = await runWith(environment, "flood", network, { host: "site.test", ...input });
  expect(result, JSON.stringify(result.error ?? result.stderr)).toMatchObject({ status: "succeeded" });
  return result;
}

/** The most memory beyond what there was, in MiB. */
async function peakDuring(act: () => Promise<unknown>): Promise<number> {
  const before = process.memoryUsage().rss;
  let peak = 0;
  const looking = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss - before);
  }, 20);
  await act();
  clearInterval(looking);
  return peak / 2 ** 20;
}

describe.each([
  { way: "as root", engineEnv: process.env, isSecond: false },
  // What carries connections is the same for both ways, so the second has the first flood.
  {
    way: "by a second container",
    engineEnv: { ...process.env, CORRAL_LISTEN_BY_CONTAINER: "1" },
    isSecond: true,
  },
])("a flood at places made $way", ({ engineEnv, isSecond }) => {
  beforeAll(async () => {
    const limits = { timeout: "90s", pids: 64 };
    const flood = { image: "corral/python", command: python(FLOOD), output: "json", limits };
    project = await openProject({ workers: { flood }, policy: "default" }, { engineEnv });
  });
  afterAll(() => project[Symbol.asyncDispose]());

  it("of 1,000 connections at once leaves 64 open, and the report says why", async () => {
    const before = site.connections;
    const result = await flooded({ port: 7000, count: 1000, text: "x\n" });
    expect(result.output).toEqual({ answered: 64, closed: 936, refused: 0, open: 64 });
    expect(site.connections - before).toBe(64);
    expect(result.network?.denied).toEqual([
      expect.objectContaining({ to: "site.test:7000", reason: "limit", count: 936 }),
    ]);
    expect(result.network?.allowed).toEqual([
      { to: "site.test:7000", connections: 64, requests: 0, up: 128, down: 128 },
    ]);
  });

  it.skipIf(isSecond && !AT_LENGTH)(
    "of 1,000 connections is carried if the network allows so many, within bounded memory",
    async () => {
      let result: RunResult | undefined;
      const peak = await peakDuring(async () => {
        result = await flooded({ port: 7000, count: 1000, text: "x\n" }, { connections: 1000 });
      });
      expect(result?.output).toEqual({ answered: 1000, closed: 0, refused: 0, open: 1000 });
      expect(peak).toBeLessThan(400);
    },
  );

  it.skipIf(isSecond && !AT_LENGTH)("of connections that say nothing holds no more than its places", async () => {
    const before = site.connections;
    await flooded({ port: 7002, count: 300, seconds: 1 });
    expect(site.connections - before).toBeLessThanOrEqual(64);
  });

  it.skipIf(isSecond && !AT_LENGTH).each(["end", "reset"])(
    "of connections that are closed at once (%s) leaves nothing",
    async (close) => {
      const result = await flooded({ port: 7000, count: AT_LENGTH ? 1000 : 300, text: "x\n", close });
      expect(result.output).toMatchObject({ refused: 0 });
      const again = await flooded({ port: 7000, count: 64, text: "x\n" });
      expect(again.output).toMatchObject({ answered: 64 });
    },
  );

  it.skipIf(isSecond && !AT_LENGTH)("of names that are not allowed fills no report", async () => {
    const events = project.events.length;
    const text = "CONNECT host-%d.test:443 HTTP/1.1\r\nHost: host-%d.test:443\r\n\r\n".replace(
      "host-%d.test:443\r\n\r\n",
      "x\r\n\r\n",
    );
    const result = await flooded(
      { host: "127.88.0.1", port: 3128, count: AT_LENGTH ? 2500 : 800, text, close: "end" },
      { connections: 1000 },
    );
    const { denied = [], unlisted = 0 } = result.network ?? {};
    expect(denied.length).toBeLessThanOrEqual(200);
    expect(JSON.stringify(result.network).length).toBeLessThan(200_000);
    expect(denied.length + unlisted).toBeGreaterThan(200);
    expect(project.events.slice(events).filter(({ type }) => type === "network_denied").length).toBeLessThanOrEqual(20);
  });

  it.skipIf(isSecond && !AT_LENGTH)(
    "of bytes from a host, to a client that does not read, is held within a bound",
    async () => {
      const peak = await peakDuring(() => flooded({ port: 7001, count: 64, deaf: true, seconds: AT_LENGTH ? 4 : 2 }));
      expect(peak).toBeLessThan(300);
    },
  );
});
