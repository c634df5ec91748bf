import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Order, Orders, type RemoteClient } from "../../bench/network/orders.ts";
import { type Origin, openOrigin } from "../../bench/network/origin.ts";
import { script } from "../../bench/network/sidecar.ts";

const HERE = "127.0.0.1";
const open = new DisposableStack();
let origin: Origin;
let client: RemoteClient;
let proxyPort: number;

/** A program of the bench, which the bench starts in a container. */
function start(program: string, args: readonly unknown[]): void {
  const child = spawn(process.execPath, ["-e", program, ...args.map(String)], { stdio: "inherit" });
  open.defer(() => void child.kill());
}

beforeAll(async () => {
  origin = open.use(await openOrigin([HERE], ["bench.example"]));
  const orders = open.use(new Orders());
  const port = await orders.listen(HERE);
  proxyPort = await freePort();
  start(await script("proxy"), [proxyPort, HERE, port]);
  start(await script("client"), ["me", HERE, port]);
  await orders.client("proxy");
  client = await orders.client("me");
});

afterAll(() => open.dispose());

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, HERE, listening));
  const address = server.address();
  await new Promise((closed) => server.close(closed));
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

function order(protocol: "tls" | "raw", more: Partial<Order> = {}): Order {
  return { host: HERE, port: origin.ports[0]?.[protocol] ?? 0, protocol, bytes: 3_000_000, kept: false, ...more };
}

describe("the client of the bench's table for the network", () => {
  it("measures downloads and requests over TLS and TCP, direct and through a proxy, on new and on kept connections", async () => {
    const proxy = { host: HERE, port: proxyPort };
    for (const asked of [order("tls"), order("raw"), order("tls", { proxy }), order("raw", { proxy })]) {
      expect(await client.measure(asked)).toBeGreaterThan(0);
    }
    const kept = order("tls", { kept: true, bytes: 100 });
    const fresh = order("tls", { bytes: 100 });
    expect(await client.measure(kept)).toBeGreaterThan(0);
    expect(await client.measure(kept)).toBeGreaterThan(0);
    expect(await client.measure(fresh)).toBeGreaterThan(0);
  });

  it("fails if the answer is another one than expected: a contender that is quick but wrong does not count", async () => {
    const refused = order("raw", { port: 1 });
    await expect(client.measure(refused)).rejects.toThrow("ECONNREFUSED");
    const plain = order("tls", { protocol: "http" });
    await expect(client.measure(plain)).rejects.toThrow(/400 Bad Request|ended early|ECONNRESET/);
  });
});
