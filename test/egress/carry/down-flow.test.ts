import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { BOUNDS } from "../../../src/egress/model/outlet.ts";
import { DownFlow } from "../../../src/egress/traffic/traffic.ts";

const BYTES = 24 * 1024 ** 2;

/** Two ends of one connection. */
async function pair(): Promise<{ near: Socket; far: Socket }> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const near = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [far] = (await once(server, "connection")) as [Socket];
  server.close();
  return { near, far };
}

/** A socket that stays paused, made with the flow, to a host that sends `content` and ends. */
async function host(flow: DownFlow, content: Buffer): Promise<Socket> {
  const server = createServer((socket) => socket.end(content)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", onread: flow.onread });
  socket.once("connect", () => socket.pause());
  await once(socket, "connect");
  server.close();
  return socket;
}

function sha256(content: Buffer): string {
  return createHash("sha256").update(content).digest("hex");
}

describe("what a host sends", () => {
  it("arrives whole at a client that is slow, then quick, and then comes the end", async () => {
    const content = randomBytes(BYTES);
    const flow = new DownFlow();
    const { near, far } = await pair();
    let seen = 0;
    let largest = 0;
    flow.pump(await host(flow, content), near, (piece) => {
      seen += piece.length;
      largest = Math.max(largest, piece.length);
      return true;
    });
    const pieces: Buffer[] = [];
    far.pause();
    await delay(50);
    for await (const piece of far) {
      pieces.push(piece);
      if (pieces.length < 20) await delay(5);
    }
    expect(seen).toBe(BYTES);
    expect(sha256(Buffer.concat(pieces))).toBe(sha256(content));
    expect(largest).toBe(BOUNDS.pieceBytes.most);
  });

  it("waits in few buffers if the client does not read, also if it comes in small pieces after large ones", async () => {
    const { near, far } = await pair();
    far.pause();
    const flow = new DownFlow();
    const { buffer, callback } = flow.onread;
    if (typeof buffer !== "function") throw new TypeError("it makes buffers");
    flow.pump(new Socket(), near, () => true);
    const made = new Set<Uint8Array>();
    const next = (): Uint8Array => {
      const one = buffer();
      made.add(one);
      return one;
    };
    let kept = 0;
    for (let goesOn = true; goesOn; kept += 1) {
      // It fills what the kernel takes, then trickles.
      const one = next();
      goesOn = callback(near.writableLength === 0 ? one.length : 100, one);
    }
    expect(kept).toBeGreaterThan(100);
    expect([...made].reduce((sum, one) => sum + one.length, 0)).toBeLessThan(8 * BOUNDS.pieceBytes.most);
    expect(near.writableLength).toBeLessThan(BOUNDS.bufferedBytes + BOUNDS.pieceBytes.most);
    near.destroy();
    far.destroy();
  });

  it("is dropped once it may not pass", async () => {
    const flow = new DownFlow();
    const { near, far } = await pair();
    const socket = await host(flow, randomBytes(1_000_000));
    const pieces: Buffer[] = [];
    far.on("data", (piece) => pieces.push(piece));
    flow.pump(socket, near, () => false);
    await once(far, "end");
    expect(pieces).toEqual([]);
  });
});
