import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { seeded } from "./random.ts";

/** What can go wrong with one call. `status` and `cut_*` come in variants, which the seed chooses. */
export const FAULTS = [
  "delay",
  "cut_before",
  "cut_after",
  "cut_middle",
  "garbled",
  "truncated",
  "status_before",
  "status_after",
] as const;

export type Fault = (typeof FAULTS)[number];

export interface Call {
  readonly method: string;
  /** Without the version in front and the query behind. */
  readonly path: string;
}

export interface FaultyEngineOptions {
  readonly seed: number;
  /** How often a call fails: 0.05 is one in twenty. */
  readonly rate: number;
  /** Chooses in place of the seed; `undefined`: leaves it to the seed. */
  readonly choose?: (call: Call) => Fault | null | undefined;
  /** The request's body in place of Corral's, for an Engine that makes something else. */
  readonly alter?: (call: Call, body: string) => string;
  /** The answer's body in place of the Engine's, for an Engine that lies. */
  readonly rewrite?: (call: Call, body: string) => string;
  readonly longestDelayMs?: number;
}

/** A socket behind which the Engine fails from time to time. Corral reaches it by DOCKER_HOST. */
export interface FaultyEngine extends AsyncDisposable {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly calls: number;
  /** How often each fault was put in. */
  readonly injected: Readonly<Record<string, number>>;
  /** Faults are put in only while it is on; it is at the beginning. */
  on: boolean;
  /** Breaks every connection that is open now, as an Engine does that is restarted. */
  breakAll(): void;
}

const ENGINE = "/var/run/docker.sock";
const STATUSES = [500, 409, 404] as const;

export async function openFaultyEngine(options: FaultyEngineOptions): Promise<FaultyEngine> {
  const dir = await mkdtemp(join(tmpdir(), "fe-"));
  const socket = join(dir, "s");
  const engine = new Injector(options);
  const sockets = new Set<Socket>();
  const server = createServer({ keepAliveTimeout: 60_000 });
  server.on("connection", (client: Socket) => {
    sockets.add(client);
    client.setMaxListeners(0);
    client.on("error", () => {}).on("close", () => sockets.delete(client));
  });
  server.on("request", (req, res) => void engine.answer(req, res).catch(() => req.socket.destroy()));
  server.on("upgrade", (req, client, head) => void engine.upgrade(req, client, head).catch(() => client.destroy()));
  server.listen(socket);
  await once(server, "listening");
  return {
    env: { ...process.env, DOCKER_HOST: `unix://${socket}` },
    get calls() {
      return engine.calls;
    },
    injected: engine.injected,
    get on() {
      return engine.on;
    },
    set on(on) {
      engine.on = on;
    },
    breakAll() {
      for (const client of sockets) client.destroy();
    },
    async [Symbol.asyncDispose]() {
      for (const client of sockets) client.destroy();
      server.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

class Injector {
  readonly injected: Record<string, number> = {};
  calls = 0;
  on = true;
  readonly #options: FaultyEngineOptions;
  readonly #random: () => number;

  constructor(options: FaultyEngineOptions) {
    this.#options = options;
    this.#random = seeded(options.seed);
  }

  async answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const call = callOf(req);
    const fault = this.#fault(call);
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    if (fault === "cut_before") return void req.socket.destroy();
    if (fault === "status_before") return this.#wrongStatus(res);
    if (fault === "delay") await this.#delay();
    const { alter } = this.#options;
    const given = Buffer.concat(chunks);
    const asks = alter === undefined || !this.on ? given : Buffer.from(alter(call, given.toString()));
    const asked = request({
      socketPath: ENGINE,
      path: req.url,
      method: req.method,
      headers: given.length === 0 ? req.headers : { ...req.headers, "content-length": asks.length },
      agent: false,
    });
    req.socket.once("close", () => asked.destroy());
    asked.end(asks);
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    const { statusCode = 500, headers } = answer;
    const isStream = /^\/(build|images\/create|containers\/[^/]+\/archive)/.test(call.path);
    if (fault === null && isStream) {
      res.writeHead(statusCode, headers);
      return void answer.pipe(res);
    }
    const body: Buffer[] = [];
    for await (const chunk of answer) body.push(chunk as Buffer);
    const whole = this.#rewritten(call, Buffer.concat(body));
    const plain = { "content-type": headers["content-type"] ?? "text/plain" };
    if (fault === "cut_after") return void req.socket.destroy();
    if (fault === "status_after") return this.#wrongStatus(res);
    const half = whole.subarray(0, whole.length >> 1);
    if (fault === "cut_middle") {
      if (whole.length < 2) return void req.socket.destroy();
      res.writeHead(statusCode, { ...plain, "content-length": whole.length });
      res.write(half, () => req.socket.destroy());
      return;
    }
    const sent = fault === "garbled" ? Buffer.from('{"Id": 7, "State": [}') : fault === "truncated" ? half : whole;
    // A 204 and a 304 have no body.
    const hasBody = statusCode !== 204 && statusCode !== 304;
    res.writeHead(statusCode, hasBody ? { ...plain, "content-length": sent.length } : {});
    res.end(hasBody ? sent : undefined);
  }

  /** An attached connection: it can be cut and garbled long after its beginning. */
  async upgrade(req: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    client.on("error", () => {});
    const fault = this.#fault(callOf(req));
    if (fault === "cut_before") return void client.destroy();
    if (fault === "status_before") {
      const body = JSON.stringify({ message: "a wrong answer" });
      client.end(`HTTP/1.1 ${this.#status()} Wrong\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      return;
    }
    if (fault === "delay") await this.#delay();
    const asked = request({
      socketPath: ENGINE,
      path: req.url,
      method: req.method,
      headers: req.headers,
      agent: false,
    });
    asked.on("error", () => client.destroy());
    const { body, rest } = await bodyOf(req, client, head);
    asked.end(body);
    const [answer, engine] = (await Promise.race([
      once(asked, "upgrade"),
      once(asked, "response").then(([response]) => [response, null]),
    ])) as [IncomingMessage, Duplex | null];
    if (engine === null) {
      const body: Buffer[] = [];
      for await (const chunk of answer) body.push(chunk as Buffer);
      const whole = Buffer.concat(body);
      client.write(`HTTP/1.1 ${answer.statusCode} Answer\r\nContent-Length: ${whole.length}\r\n\r\n`);
      return void client.end(whole);
    }
    engine.on("error", () => client.destroy());
    client.on("close", () => engine.destroy());
    const cut = (): void => {
      client.destroy();
      engine.destroy();
    };
    // The Engine has it, and the client is not told.
    if (fault === "cut_after" || fault === "status_after") return cut();
    const lines = [...Object.entries(answer.headers)].map(([name, value]) => `${name}: ${value}\r\n`).join("");
    client.write(`HTTP/1.1 101 UPGRADED\r\n${lines}\r\n`);
    if (rest.length > 0) engine.write(rest);
    client.pipe(engine);
    engine.on("end", () => client.end());
    // Not at once: while the worker runs, between two pieces of output.
    if (fault === "truncated") setTimeout(cut, 5 + this.#random() * 400).unref();
    const at = Math.floor(this.#random() * 3);
    let pieces = 0;
    engine.on("data", (chunk: Buffer) => {
      const isChosen = pieces++ === at;
      if (isChosen && fault === "cut_middle") {
        // Within a frame, whatever pieces the chunk has.
        client.write(chunk.subarray(0, chunk.length - 1), cut);
      } else if (isChosen && fault === "garbled") client.write(Buffer.concat([Buffer.from([9, 9, 9, 9]), chunk]));
      else client.write(chunk);
    });
  }

  #fault(call: Call): Fault | null {
    this.calls += 1;
    // The seed moves on for each call alike, so that one call's fault does not depend on what others are.
    const [whether, which] = [this.#random(), this.#random()];
    if (!this.on) return null;
    const chosen = this.#options.choose?.(call);
    const seedsOwn = whether < this.#options.rate ? (FAULTS[Math.floor(which * FAULTS.length)] ?? null) : null;
    const fault = chosen === undefined ? seedsOwn : chosen;
    if (fault !== null) this.injected[fault] = (this.injected[fault] ?? 0) + 1;
    return fault;
  }

  async #delay(): Promise<void> {
    await pause(this.#random() * (this.#options.longestDelayMs ?? 1500));
  }

  #status(): number {
    return STATUSES[Math.floor(this.#random() * STATUSES.length)] ?? 500;
  }

  #wrongStatus(res: ServerResponse): void {
    res.writeHead(this.#status(), { "content-type": "application/json" });
    res.end(JSON.stringify({ message: "a wrong answer" }));
  }

  #rewritten(call: Call, body: Buffer): Buffer {
    const { rewrite } = this.#options;
    return rewrite === undefined || !this.on ? body : Buffer.from(rewrite(call, body.toString()));
  }
}

/** The request's own body comes before what is sent to the container. */
async function bodyOf(req: IncomingMessage, client: Duplex, head: Buffer): Promise<{ body: Buffer; rest: Buffer }> {
  const length = Number(req.headers["content-length"] ?? 0);
  let begun = head;
  while (begun.length < length) {
    const [chunk] = (await once(client, "data")) as [Buffer];
    client.pause();
    begun = Buffer.concat([begun, chunk]);
  }
  return { body: begun.subarray(0, length), rest: begun.subarray(length) };
}

function callOf({ method = "GET", url = "/" }: IncomingMessage): Call {
  const path = url.replace(/^\/v[\d.]+(?=\/)/, "").replace(/\?.*$/s, "");
  return { method, path };
}
