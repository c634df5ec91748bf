import { StringDecoder } from "node:string_decoder";
import type { Progress } from "@modelcontextprotocol/server";
import { printable } from "../../text/visible.ts";

/** The most of an output that waits to be sent; what is older is left out here, and is in the answer. */
const MAX_WAITING_CHARS = 4000;
/** Between two messages at least. */
const INTERVAL_MS = 100;
/** Without anything else to tell. */
const HEARTBEAT_MS = 5000;

type Send = (progress: Progress) => Promise<void>;

/**
 * What a call reports while it runs: lines that a command prints, and that it still runs. One message at a time,
 * each waited for, so that a client which does not read holds nothing but a few lines here.
 */
export class CallProgress {
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  readonly #heartbeat: NodeJS.Timeout;
  readonly #begunAt = performance.now();
  /** What has no end of line yet, by stream: the two are not to be mixed within one. */
  readonly #begun = { stdout: "", stderr: "" };
  #send: Send | null;
  #waiting = "";
  #isSending = false;
  #isOver = false;
  #count = 0;
  #lastAt = performance.now();

  constructor(send: Send | null) {
    this.#send = send;
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
  }

  /** A client that came again gets it with its new request; null: no client listens now. */
  sendBy(send: Send | null): void {
    this.#send = send;
  }

  add(stream: "stdout" | "stderr", chunk: Uint8Array): void {
    if (this.#send === null || this.#isOver) return;
    const text = this.#begun[stream] + this.#decoders[stream].write(Buffer.from(chunk));
    const end = text.lastIndexOf("\n") + 1;
    this.#begun[stream] = text.slice(end).slice(-MAX_WAITING_CHARS);
    this.#waiting = (this.#waiting + text.slice(0, end)).slice(-MAX_WAITING_CHARS);
    if (end > 0) void this.#pump();
  }

  end(): void {
    this.#isOver = true;
    clearInterval(this.#heartbeat);
  }

  async #pump(): Promise<void> {
    if (this.#isSending) return;
    this.#isSending = true;
    try {
      while (this.#waiting !== "" && !this.#isOver) {
        const lines = this.#waiting;
        this.#waiting = "";
        await this.#tell(lines.replace(/\n$/, ""));
        await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS).unref());
      }
    } finally {
      this.#isSending = false;
    }
  }

  #beat(): void {
    if (performance.now() - this.#lastAt < HEARTBEAT_MS - INTERVAL_MS) return;
    const seconds = Math.round((performance.now() - this.#begunAt) / 1000);
    if (!this.#isSending) void this.#tell(`still running (${seconds} s)`);
  }

  async #tell(text: string): Promise<void> {
    if (this.#send === null) return;
    this.#lastAt = performance.now();
    this.#count += 1;
    // A client that is gone gets nothing; another path ends its call.
    await this.#send({ progress: this.#count, message: printable(text) }).catch(() => {});
  }
}
