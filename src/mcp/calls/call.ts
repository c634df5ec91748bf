import { createHash, randomBytes } from "node:crypto";
import { StringDecoder } from "node:string_decoder";
import type { ElicitRequestFormParams, Progress } from "@modelcontextprotocol/server";
import type { OnOutput } from "../../run/session/exec-command.ts";
import { printable } from "../../text/visible.ts";
import type { ToolResult } from "../../tools/tool-result.ts";
import type { Exchange } from "./exchange.ts";

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
class CallProgress {
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

/** The state of a call when its client is answered. */
export type Round =
  | { readonly kind: "done"; readonly result: ToolResult }
  /** It waits for a person's answers; the client retries with them and with `state`. */
  | { readonly kind: "asks"; readonly state: string; readonly forms: ReadonlyMap<string, ElicitRequestFormParams> };

export type Work = (call: Call, signal: AbortSignal, onOutput: OnOutput) => Promise<ToolResult>;

interface Open {
  readonly form: ElicitRequestFormParams;
  readonly settle: PromiseWithResolvers<unknown>;
}

/**
 * One use of a tool. It may outlast the request that began it: since the revision 2026-07-28 a server cannot ask its
 * client anything, so a question becomes the answer to the request, and the work waits here until the client
 * retries.
 */
export class Call {
  /** It cannot be guessed: a client that has it may answer for the person. */
  readonly state = randomBytes(24).toString("base64url");
  /** What the client should know in addition to the result. */
  readonly notes: string[] = [];
  /** The tool's name. */
  readonly tool: string;
  readonly #cancelled = new AbortController();
  readonly #progress: CallProgress;
  readonly #open = new Map<string, Open>();
  readonly #of: string;
  #asked = Promise.withResolvers<void>();
  #exchange: Exchange | null;
  #questions = 0;
  #isOver = false;
  readonly #result: Promise<ToolResult>;

  constructor(name: string, input: unknown, exchange: Exchange, work: Work) {
    this.tool = name;
    this.#of = identityOf(name, input);
    this.#exchange = exchange;
    this.#progress = new CallProgress(exchange.progress);
    const onOutput: OnOutput = (stream, chunk) => void this.#progress.add(stream, chunk);
    this.#result = work(this, this.#cancelled.signal, onOutput).finally(() => this.#end());
    // A client may wait for it later, or never.
    this.#result.catch(() => {});
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Settles when the call has ended, whether it succeeded or not. */
  get ended(): Promise<unknown> {
    return this.#result.catch(() => {});
  }

  /** True if its client can be asked a question now. */
  get asks(): boolean {
    return !this.#isOver && (this.#exchange?.asks ?? this.#open.size > 0);
  }

  /** True for the same tool and input: a retry continues only the call that it repeats. */
  is(name: string, input: unknown): boolean {
    return this.#of === identityOf(name, input);
  }

  /** Resolves when the call is done, or when it has a question. If the request is cancelled, the call is cancelled. */
  async round(exchange: Exchange): Promise<Round> {
    this.#exchange = exchange;
    this.#progress.sendBy(exchange.progress);
    const cancel = (): void => this.cancel(exchange.signal.reason);
    exchange.signal.addEventListener("abort", cancel, { once: true });
    if (exchange.signal.aborted) cancel();
    this.#takeAnswers(exchange.responses);
    try {
      for (;;) {
        const result = await Promise.race([this.#result, this.#asked.promise.then(() => null)]);
        if (result !== null) return { kind: "done", result };
        this.#asked = Promise.withResolvers();
        // A question may have been withdrawn since.
        if (this.#open.size === 0) continue;
        return { kind: "asks", state: this.state, forms: new Map([...this.#open].map(([id, { form }]) => [id, form])) };
      }
    } finally {
      exchange.signal.removeEventListener("abort", cancel);
      if (!this.#isOver) this.#progress.sendBy(null);
      this.#exchange = null;
    }
  }

  /** Shows a form to the client's person; returns the client's reply, which may have any form. */
  async ask(form: ElicitRequestFormParams, signal: AbortSignal): Promise<unknown> {
    signal.throwIfAborted();
    const push = this.#exchange?.push ?? null;
    if (push !== null) return await push.elicit(form, AbortSignal.any([signal, this.#cancelled.signal]));
    this.#questions += 1;
    const id = `approval-${this.#questions}`;
    const settle = Promise.withResolvers<unknown>();
    const withdraw = (): void => settle.reject(signal.reason);
    signal.addEventListener("abort", withdraw, { once: true });
    this.#open.set(id, { form, settle });
    this.#asked.resolve();
    try {
      return await settle.promise;
    } finally {
      signal.removeEventListener("abort", withdraw);
      this.#open.delete(id);
    }
  }

  cancel(reason: unknown): void {
    this.#cancelled.abort(reason);
  }

  /** The client gets the open questions again. */
  #takeAnswers(responses: Readonly<Record<string, unknown>>): void {
    for (const [id, { settle }] of [...this.#open]) {
      if (!Object.hasOwn(responses, id)) continue;
      this.#open.delete(id);
      settle.resolve(responses[id]);
    }
    if (this.#open.size > 0) this.#asked.resolve();
  }

  /** Withdraws questions that are still open (of a program in the background): no client will answer them. */
  #end(): void {
    this.#isOver = true;
    this.#progress.end();
    this.cancel(new Error("the call is over"));
    for (const { settle } of this.#open.values()) settle.reject(this.#cancelled.signal.reason);
  }
}

function identityOf(name: string, input: unknown): string {
  return createHash("sha256")
    .update(JSON.stringify([name, input ?? null]))
    .digest("base64");
}
