import fs from "node:fs";
import { resolve } from "node:path";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

const { O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK, O_NOCTTY } = fs.constants;

/** Of lines that their reader has not taken; further lines are dropped. */
const MAX_WAITING_BYTES = 1024 * 1024;
const AGAIN_MS = 50;
/** How long the end of the fleet waits for a reader. */
const END_MS = 2000;

/**
 * Lines for another program, which never make the fleet wait: those that a slow reader does not take in time are dropped and
 * counted, and if it has closed its end, the fleet continues without it.
 */
export class EventSink {
  readonly #write: (bytes: Buffer) => number;
  readonly #close: () => void;
  readonly #onFault: (why: string) => void;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #dropped = 0;
  #isOver = false;
  #timer: NodeJS.Timeout | null = null;

  /** `target`: a file, which is appended to, a FIFO that a program reads, or `-` for standard output. @throws UsageError */
  static open(
    target: string,
    { cwd, stdout }: Pick<Terminal, "cwd" | "stdout">,
    onFault: (why: string) => void,
  ): EventSink {
    const isOut = target === "-";
    try {
      // Its own open file, so that other users of standard output do not become non-blocking.
      const path = isOut ? "/proc/self/fd/1" : resolve(cwd, target);
      const fd = fs.openSync(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | (isOut ? 0 : O_CREAT), 0o666);
      return new EventSink(
        (bytes) => fs.writeSync(fd, bytes),
        () => fs.closeSync(fd),
        onFault,
      );
    } catch (error) {
      // A socket cannot be opened again; Node writes to it without waiting.
      if (isOut)
        return new EventSink(
          (bytes) => writtenTo(stdout, bytes),
          () => {},
          onFault,
        );
      const { code, message } = error as NodeJS.ErrnoException;
      const why = code === "ENXIO" ? "no program reads this FIFO; start its reader first" : message;
      throw new UsageError(`--events ${target}: ${why}`, { cause: error });
    }
  }

  private constructor(write: (bytes: Buffer) => number, close: () => void, onFault: (why: string) => void) {
    this.#write = write;
    this.#close = close;
    this.#onFault = onFault;
  }

  /** `line`: with its line feed. */
  write(line: string): void {
    if (this.#isOver) return;
    const bytes = Buffer.from(line);
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
      this.#dropped += 1;
      return;
    }
    if (this.#dropped > 0)
      this.#queue(Buffer.from(`${JSON.stringify({ type: "events_dropped", count: this.#dropped })}\n`));
    this.#dropped = 0;
    this.#queue(bytes);
    if (this.#timer === null) this.#flush();
  }

  /** Waits a moment for a slow reader, and no longer. */
  async end(): Promise<void> {
    const until = Date.now() + END_MS;
    while (!this.#isOver && this.#waiting.length > 0 && Date.now() < until) {
      this.#flush();
      if (this.#waiting.length > 0) await new Promise((wake) => setTimeout(wake, AGAIN_MS));
    }
    if (this.#waiting.length > 0 || this.#dropped > 0) this.#onFault("its reader did not take all events");
    this.#over();
  }

  #queue(bytes: Buffer): void {
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
  }

  #flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    try {
      while (!this.#isOver && this.#waiting.length > 0) {
        const bytes = Buffer.concat(this.#waiting);
        const written = this.#write(bytes);
        const rest = bytes.subarray(written);
        this.#waiting = rest.length === 0 ? [] : [rest];
        this.#waitingBytes = rest.length;
      }
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== "EAGAIN") {
        this.#over();
        this.#onFault(code === "EPIPE" ? "its reader has closed it" : message);
        return;
      }
      this.#timer = setTimeout(() => this.#flush(), AGAIN_MS);
      this.#timer.unref();
    }
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#waiting = [];
    this.#waitingBytes = 0;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#close();
  }
}

/** All of it, or, while too much waits in the stream, nothing. */
function writtenTo(stream: NodeJS.WriteStream, bytes: Buffer): number {
  if (stream.destroyed || stream.writableEnded) throw Object.assign(new Error("it is closed"), { code: "EPIPE" });
  if (stream.writableLength > MAX_WAITING_BYTES) throw Object.assign(new Error("it is full"), { code: "EAGAIN" });
  stream.write(bytes);
  return bytes.length;
}
