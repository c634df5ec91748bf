import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setPriority } from "node:os";
import { setTimeout as pause } from "node:timers/promises";

/*
 * Hostile clients of one service, each in its own way, for some seconds: `node hostile-clients.ts JSON`. A process of their own, so that what
 * they do is not counted as time of the service's answers. They send to this machine alone.
 */

export interface Target {
  readonly port: number;
  readonly tokens: Readonly<Record<"metrics" | "read" | "run" | "decide", string>>;
  /** A run that has not ended. */
  readonly run: string;
  readonly pageFile: string;
  readonly seconds: number;
}

type Kind = (target: Target, over: AbortSignal) => Promise<void>;

/** All kinds together open some hundred connections a second: on a small machine they and the service share two cores. */
const AT_ONCE = 8;
const PAUSE_MS = 250;
const MIB = Buffer.alloc(1024 ** 2, "a");
const sockets = new Set<Socket>();

/** A connection that is never read. */
function opened({ port }: Target): Socket {
  const socket = connect(port, "127.0.0.1");
  sockets.add(socket);
  socket.on("error", () => {}).once("close", () => sockets.delete(socket));
  socket.pause();
  return socket;
}

const head = ({ port }: Target, line: string, token = "", more = ""): string =>
  `${line} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${token === "" ? "" : `Authorization: Bearer ${token}\r\n`}${more}\r\n`;
const json = (bytes: number): string => `Content-Type: application/json\r\nContent-Length: ${bytes}\r\n`;

/** Sends bytes, reads for a moment and ends. */
async function tried(target: Target, bytes: string | Buffer, ms = 100): Promise<void> {
  const socket = opened(target);
  socket.resume().write(bytes);
  await Promise.race([once(socket, "close").catch(() => {}), pause(ms)]);
  socket.destroy();
}

/** So many connections that stay, each opened again when the service closes it. */
async function held(target: Target, over: AbortSignal, count: number, bytes: string, atOnce = AT_ONCE): Promise<void> {
  const open = new Set<Socket>();
  while (!over.aborted) {
    for (const socket of open) if (socket.closed) open.delete(socket);
    for (let more = Math.min(atOnce, count - open.size); more > 0; more -= 1) {
      const socket = opened(target);
      socket.write(bytes);
      open.add(socket);
    }
    await pause(PAUSE_MS);
  }
}

async function repeated(over: AbortSignal, ms: number, act: () => Promise<void>): Promise<void> {
  while (!over.aborted) {
    await act();
    await pause(5 * ms);
  }
}

async function dripped(target: Target, over: AbortSignal, count: number, first: string, drop: string): Promise<void> {
  const open = Array.from({ length: count }, () => opened(target));
  for (const socket of open) socket.write(first);
  await repeated(over, 200, async () => {
    for (const socket of open) socket.write(drop);
  });
}

const WRONG_ITEMS = `{"worker":"echo","items":[${"1,".repeat(480_000)}1]}`;
const WRONG_NAMES = `{${Array.from({ length: 45_000 }, (_, at) => `"k${at}":1`).join()}}`;

export const KINDS: Readonly<Record<string, Kind>> = {
  "headers that come slowly": (t, over) => dripped(t, over, 20, head(t, "GET /v1/health").slice(0, -2), "x"),
  "bodies that come slowly": (t, over) =>
    dripped(t, over, 20, head(t, "POST /v1/runs", t.tokens.run, json(1_000_000)), " "),
  "unread files of the page, in a row, without a token": (t, over) =>
    held(t, over, 4, head(t, `GET ${t.pageFile}`).repeat(700)),
  "unread descriptions, in a row": (t, over) =>
    held(t, over, 10, head(t, "GET /openapi.json", t.tokens.read).repeat(15)),
  "unread metrics": (t, over) => held(t, over, 20, head(t, "GET /metrics", t.tokens.metrics)),
  "unread events": (t, over) => held(t, over, 150, head(t, `GET /v1/runs/${t.run}/events`, t.tokens.read)),
  "unread output": (t, over) => held(t, over, 80, head(t, `GET /v1/runs/${t.run}/output?follow=true`, t.tokens.decide)),
  "requests in a row that wait": (t, over) =>
    held(t, over, 10, head(t, `GET /v1/runs/${t.run}/result?wait=60`, t.tokens.decide).repeat(200)),
  "requests in a row without a token": (t, over) =>
    repeated(over, 50, () => tried(t, head(t, "GET /v1/projects").repeat(500))),
  "silent connections": (t, over) => held(t, over, 600, "", 50),
  "connections of a token that are kept": (t, over) =>
    held(t, over, 300, head(t, "GET /v1/projects", t.tokens.metrics), 50),
  "connections that are half closed": (t, over) =>
    repeated(over, 50, async () => void opened(t).end(head(t, "GET /openapi.json", t.tokens.read))),
  "headers without measure": (t, over) =>
    repeated(over, 50, () => tried(t, head(t, "GET /", "", `X: ${"a".repeat(100_000)}\r\n`))),
  "chunks without end": (t, over) =>
    repeated(over, 50, () =>
      tried(
        t,
        `${head(t, "POST /v1/runs", t.tokens.run, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n")}${`1;${"e".repeat(200)}\r\n \r\n`.repeat(2000)}`,
      ),
    ),
  "requests that break off": (t, over) =>
    repeated(over, 20, async () => {
      const form = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n";
      await tried(t, `${head(t, "POST /v1/runs", t.tokens.run, json(1000))}{"worker":`, 20);
      await tried(t, `${head(t, "POST /v1/runs", t.tokens.run, form)}--b\r\nContent-Disposition: form-data`, 20);
    }),
  "wrong tokens": (t, over) =>
    repeated(over, 5, async () => {
      await Promise.all(
        Array.from({ length: 4 }, () => tried(t, head(t, "GET /v1/projects", `corral_${"A".repeat(43)}`))),
      );
    }),
  "other protocols": (t, over) =>
    repeated(over, 30, async () => {
      await tried(t, head(t, "GET /v1/runs", t.tokens.read, "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
      await tried(t, head(t, "CONNECT evil.example:443", t.tokens.read));
      await tried(t, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }),
  "large bodies of each token": async (t, over) => {
    const size = 60 * MIB.length;
    for (const token of Object.values(t.tokens)) {
      for (let more = 2; more > 0 && !over.aborted; more -= 1) {
        const socket = opened(t).resume();
        socket.write(`${head(t, "POST /v1/fleets", token, json(size))}"`);
        for (let sent = 1; sent < 60 && !over.aborted && socket.writable; sent += 1)
          if (!socket.write(MIB))
            await Promise.race([once(socket, "drain"), once(socket, "close"), pause(2000)]).catch(() => {});
      }
    }
  },
  "the largest wrong bodies": (t, over) =>
    repeated(over, 300, async () => {
      await tried(t, head(t, "POST /v1/fleets", t.tokens.run, json(WRONG_ITEMS.length)) + WRONG_ITEMS, 3000);
      await tried(t, head(t, "POST /v1/runs", t.tokens.run, json(WRONG_NAMES.length)) + WRONG_NAMES, 3000);
    }),
  "uploads of nothing that was asked for": (t, over) =>
    repeated(over, 100, async () => {
      const type = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 4000000000\r\n";
      const part = '--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n';
      await tried(t, Buffer.concat([Buffer.from(head(t, "POST /v1/runs", t.tokens.run, type) + part), MIB]), 500);
    }),
  "many HEAD, OPTIONS and TRACE": (t, over) =>
    repeated(over, 10, async () => {
      for (const method of ["HEAD /", "OPTIONS *", "OPTIONS /v1/runs", "TRACE /v1/health"])
        await tried(t, head(t, method), 20);
    }),
  "ranges and codings": (t, over) =>
    repeated(over, 30, async () => {
      const ranges = `Range: bytes=${"0-,".repeat(2000)}0-1\r\nAccept-Encoding: ${"gzip;q=0.1,".repeat(500)}br\r\n`;
      await tried(t, head(t, `GET ${t.pageFile}`, "", ranges));
      await tried(
        t,
        `${head(t, "POST /v1/runs", t.tokens.run, `${json(20)}Content-Encoding: gzip\r\n`)}${"x".repeat(20)}`,
      );
    }),
  "reads that take long": (t, over) => held(t, over, 40, head(t, "GET /v1/machine", t.tokens.read)),
};

if (import.meta.main) {
  // What a client of another machine would not take from the service.
  setPriority(19);
  const target = JSON.parse(process.argv[2] ?? "") as Target;
  const over = AbortSignal.timeout(target.seconds * 1000);
  process.stdout.write("begun\n");
  await Promise.all(Object.values(KINDS).map((kind) => kind(target, over)));
  for (const socket of sockets) socket.destroy();
}
