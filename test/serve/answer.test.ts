import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { send, sendFault } from "../../src/serve/http/answer.ts";
import { ServiceFault } from "../../src/serve/http/fault.ts";

const PIECE = Buffer.alloc(1024 ** 2);
const STALL_MS = 500;

let close = (): void => {};
afterEach(() => close());

/** Answers a request with a stream that has no end; `sent`: how many of its pieces were asked for. */
async function endless() {
  const told = { sent: 0, over: false };
  async function* pieces() {
    for (;;) {
      told.sent += 1;
      yield PIECE;
    }
  }
  const server = createServer((_, response) => {
    const answer = { status: 200, contentType: "application/octet-stream", pieces: pieces() } as const;
    void send(response, answer, { stallMs: STALL_MS }).then(() => {
      told.over = true;
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {});
  close = () => {
    socket.destroy();
    server.close();
  };
  socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
  return { told, socket };
}

it("a client that does not read has few pieces made for it, and its connection is closed in time", async () => {
  const begun = performance.now();
  const { told, socket } = await endless();
  socket.pause();
  await expect.poll(() => told.over).toBe(true);
  expect(performance.now() - begun).toBeGreaterThanOrEqual(STALL_MS);
  // As many as the kernel takes for a connection.
  expect(told.sent).toBeLessThan(32);
});

it("a client that reads slowly keeps its connection", async () => {
  const { told, socket } = await endless();
  let bytes = 0;
  socket.on("data", (chunk) => {
    bytes += chunk.length;
  });
  const begun = performance.now();
  while (performance.now() - begun < 2 * STALL_MS) {
    socket.pause();
    await pause(10);
    socket.resume();
    await pause(2);
  }
  expect(told.over).toBe(false);
  expect(bytes).toBeGreaterThan(PIECE.length);
});

it("a whole answer that its client reads a little of now and then is not held for ever", async () => {
  let unread = 0;
  const server = createServer((_, response) => {
    void send(
      response,
      { status: 200, json: "a".repeat(20 * PIECE.length) },
      { stallMs: 10, leastBytesPerMs: 20 * 1024, onUnread: () => (unread += 1) },
    );
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {}).pause();
  const reading = setInterval(() => socket.read(1), 50);
  close = () => {
    clearInterval(reading);
    socket.destroy();
    server.close();
  };
  socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
  await expect.poll(() => unread).toBe(1);
});

it("a request that is refused while it still sends can send the rest, and has the answer", async () => {
  const server = createServer((_, response) => {
    sendFault(response, new ServiceFault(400, "WRONG_REQUEST", "not this"), (text) => text);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  close = () => void server.close();
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const events: string[] = [];
  for (const event of ["error", "end"]) socket.on(event, () => events.push(event));
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk.toString();
  });
  socket.write(`POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ${2 * PIECE.length}\r\n\r\n`);
  socket.write(PIECE);
  await expect.poll(() => answer).toContain("not this");
  await pause(100);
  expect(events).toEqual([]);
  socket.write(PIECE);
  await expect.poll(() => events).toEqual(["end"]);
});
