import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Writable } from "node:stream";
import type { CarriedEnd, PipeEnd } from "../../isolation/port/cell.ts";
import { within } from "../../platform/within.ts";

/*
 * Large contents between a client and a session's cell. A process that has the client's connection and the cell's pipe moves them: here each 64 KiB
 * would be objects of their own, for five times the processor time (docs/facts.md, fact: carried-content).
 */

/** What is smaller is not worth a process. */
const LEAST_BYTES = 4 * 1024 ** 2;

export function isWorthCarrying(bytes: number): boolean {
  return bytes >= LEAST_BYTES;
}

const BLOCK_BYTES = 1024 ** 2;
/** Reads and writes blocks of that size, and says at its end how many bytes they were. */
const MOVE = "dd bs=1M iflag=fullblock,count_bytes";
const TO_CLIENT = `exec ${MOVE} count="$1"`;
/** What Node has read of the body comes by descriptor 3. */
const FROM_CLIENT = `${MOVE} count="$1" <&3 2> /dev/null && exec ${MOVE} count="$2" 3<&-`;
/** A connection that is closed while its client still sends can take the answer with it. */
const ANSWER = "cat && exec timeout 2 cat <&1 > /dev/null";

const LOOKS = 20;
/** How a shell tells SIGPIPE. */
const BROKEN_PIPE = 128 + 13;
const FLUSH_MS = 10_000;

export interface CarriageTimes {
  /** How long a client may send, or read, nothing while the cell waits for it. */
  readonly stallMs: number;
}

/** The connection of one request, which can be given to such a process. Node has it no more then. */
export class Carriage {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #signal: AbortSignal;
  readonly #times: CarriageTimes;
  #answerer: ChildProcess | null = null;
  #isAway = false;

  /** `signal`: ends what is moved. */
  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
    times: CarriageTimes = { stallMs: 60_000 },
  ) {
    this.#request = request;
    this.#response = response;
    this.#signal = signal;
    this.#times = times;
  }

  /** Another process has it: that Node's end is closed says nothing of the client. */
  get isAway(): boolean {
    return this.#isAway;
  }

  /** The length of a body that is worth it; null for another one. */
  get bodyBytes(): number | null {
    const { headers } = this.#request;
    const bytes = Number(headers["content-length"] ?? 0);
    return headers["transfer-encoding"] === undefined && isWorthCarrying(bytes) ? bytes : null;
  }

  /** Moves a body of that many bytes, of which nothing was read. The answer to it is for {@link answer}. */
  async bodyInto(pipe: PipeEnd, bytes: number): Promise<CarriedEnd> {
    const { socket } = this.#request;
    // What came with the head is parsed by then.
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (socket.destroyed) return "cut";
    this.#isAway = true;
    // In one turn: the parser gets what was read and waits, and nothing is read after that.
    socket.read();
    const first: Buffer = this.#request.read() ?? Buffer.alloc(0);
    const counts = [first.length, bytes - first.length];
    const child = started(FROM_CLIENT, counts, [socket, pipe, "pipe", "pipe"]);
    this.#answerer = started(ANSWER, [], ["pipe", socket, "ignore"]);
    socket.destroy();
    (child.stdio[3] as Writable).on("error", () => {}).end(first);
    return await this.#ended(child, bytes - first.length, ({ read, wrote }) => read - wrote < BLOCK_BYTES);
  }

  /** An answer to a body that was moved. */
  answer(text: string): void {
    this.#answerer?.stdin?.end(text);
  }

  /** Moves the content of an answer, whose head was written. */
  async contentFrom(pipe: PipeEnd, bytes: number): Promise<CarriedEnd> {
    const { socket } = this.#request;
    if (socket.destroyed) return "closed";
    this.#isAway = true;
    const child = started(TO_CLIENT, [bytes], [pipe, socket, "pipe"]);
    socket.destroy();
    return await this.#ended(child, bytes, ({ read, wrote }) => read - wrote >= BLOCK_BYTES);
  }

  /** The head of an answer is on its way, and nothing of it is left here. */
  async flushed(): Promise<void> {
    const { socket } = this.#request;
    this.#response.flushHeaders();
    if (socket.writableLength > 0)
      await within(new Promise<void>((resolve) => socket.write("", () => resolve())), FLUSH_MS);
    if (socket.writableLength > 0) socket.destroy();
  }

  /** `waitsForClient`: what it has moved says that it does. */
  async #ended(child: ChildProcess, bytes: number, waitsForClient: (moved: Moved) => boolean): Promise<CarriedEnd> {
    const { promise, resolve } = Promise.withResolvers<CarriedEnd>();
    let said = "";
    const kill = (): void => void child.kill("SIGKILL");
    child.stdio[2]?.on("data", (piece: Buffer) => {
      said = (said + piece.toString("latin1")).slice(-1000);
    });
    child.once("error", () => resolve("cut"));
    child.once("close", (code, signal) => {
      const isWhole = new RegExp(`^${bytes} bytes`, "m").test(said);
      const isClosed = signal === "SIGPIPE" || code === BROKEN_PIPE || /writing/.test(said);
      resolve(isWhole ? "whole" : isClosed ? "closed" : "cut");
    });
    const { stallMs } = this.#times;
    let [last, movedAt] = ["", performance.now()];
    const timer = setInterval(async () => {
      const moved = await movedBy(child.pid ?? 0);
      const now = `${moved?.read} ${moved?.wrote}`;
      if (moved === null || now !== last || !waitsForClient(moved)) [last, movedAt] = [now, performance.now()];
      else if (performance.now() - movedAt >= stallMs) kill();
    }, stallMs / LOOKS);
    this.#signal.addEventListener("abort", kill, { once: true });
    if (this.#signal.aborted) kill();
    try {
      return await promise;
    } finally {
      clearInterval(timer);
      this.#signal.removeEventListener("abort", kill);
    }
  }
}

function started(script: string, counts: readonly number[], stdio: StdioOptions): ChildProcess {
  const child = spawn("sh", ["-c", script, "sh", ...counts.map(String)], {
    stdio,
    env: { PATH: process.env.PATH, LC_ALL: "C" },
  });
  // Its caller learns of it when it ends.
  child.on("error", () => {});
  child.stdin?.on("error", () => {});
  return child;
}

interface Moved {
  readonly read: number;
  readonly wrote: number;
}

/** Null for one that has ended, or does not move the rest yet. */
async function movedBy(pid: number): Promise<Moved | null> {
  const [comm, io] = await Promise.all(
    ["comm", "io"].map((name) => readFile(`/proc/${pid}/${name}`, "latin1").catch(() => "")),
  );
  const [, read, wrote] = /^rchar: (\d+)\nwchar: (\d+)$/m.exec(io ?? "") ?? [];
  return comm !== "dd\n" || read === undefined ? null : { read: Number(read), wrote: Number(wrote) };
}
