import { createHash, randomBytes } from "node:crypto";
import { StringDecoder } from "node:string_decoder";
import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  type ElicitRequestFormParams,
  type Progress,
  type ServerContext,
} from "@modelcontextprotocol/server";
import PQueue from "p-queue";
import { inTurn } from "../../run/model/grantee.ts";
import type { OnOutput } from "../../run/session/exec-command.ts";
import { printable } from "../../text/visible.ts";
import type { ToolResult } from "../../tools/tool.ts";

/** Requests of one kind that run at once for one client. Commands always run one at a time. */
const MAX_AT_ONCE = 16;
/** Requests that wait for their turn. Further requests are refused at once. */
const MAX_WAITING = 112;

/** Places for the requests of one kind of one client. A request that waits for a person takes no place. */
export class Slots {
  readonly #queue = new PQueue({ concurrency: MAX_AT_ONCE });
  /** How many people each holder of a place waits for. */
  readonly #waiting = new Map<object, number>();

  /** Null if too many already wait. Rejects with the signal's reason if it is aborted in the queue. */
  take<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> | null {
    if (this.#queue.size >= MAX_WAITING) return null;
    return inTurn(this.#queue, work, signal);
  }

  /** Frees the holder's place while it waits. Afterwards it takes a place at once, even if all are taken. */
  async without<T>(holder: object, wait: () => Promise<T>): Promise<T> {
    this.#count(holder, 1);
    try {
      return await wait();
    } finally {
      this.#count(holder, -1);
    }
  }

  #count(holder: object, more: 1 | -1): void {
    const count = (this.#waiting.get(holder) ?? 0) + more;
    if (count === 0) this.#waiting.delete(holder);
    else this.#waiting.set(holder, count);
    this.#queue.concurrency = MAX_AT_ONCE + this.#waiting.size;
  }

  async idle(): Promise<void> {
    await this.#queue.onIdle();
  }
}

/** One request of a client, and what can be sent to the client until it is answered. */
export interface ClientExchange {
  /** Aborted when the client cancels the request, or is gone. */
  readonly signal: AbortSignal;
  /** Null if the client did not ask for it. */
  readonly progress: ((progress: Progress) => Promise<void>) | null;
  /** True if the client can show a form to a person. */
  readonly asks: boolean;
  /** Requests to the client. Null since the revision 2026-07-28: the answer says what is needed, and the client retries. */
  readonly push: Push | null;
  /** What the client sent with its retry. */
  readonly state: string | undefined;
  /** Settles when only a few answers are unread by the client: Corral holds each whole. Rejects with the signal's reason. */
  readonly whenRead: WhenRead;
  readonly responses: Readonly<Record<string, unknown>>;
}

export type WhenRead = (signal: AbortSignal) => Promise<void>;

export interface Push {
  elicit(form: ElicitRequestFormParams, signal: AbortSignal): Promise<unknown>;
  /** Null if the client does not offer roots. */
  readonly roots: ((signal: AbortSignal) => Promise<readonly string[]>) | null;
}

/** How long a client may take to send its roots. */
const ROOTS_MS = 10_000;
/** The project sets how long a form may be open; the signal ends it. */
const NO_TIME_LIMIT = 2 ** 31 - 1;

/** `initial`: what a client of the 2025 revisions declared once, for all its requests; null for a later revision. */
export function exchangeOf(
  { mcpReq }: ServerContext,
  initial: ClientCapabilities | undefined | null,
  whenRead: WhenRead,
): ClientExchange {
  const envelope: Readonly<Record<string, unknown>> = { ...mcpReq.envelope };
  const capabilities =
    initial === null ? (envelope[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined) : initial;
  const token = mcpReq._meta?.progressToken;
  return {
    signal: mcpReq.signal,
    progress:
      token === undefined
        ? null
        : (progress) =>
            mcpReq.notify({ method: "notifications/progress", params: { ...progress, progressToken: token } }),
    asks: canShowForms(capabilities),
    push: initial === null ? null : pushThrough(mcpReq, capabilities),
    state: mcpReq.requestState<string>(),
    whenRead,
    responses: mcpReq.inputResponses ?? {},
  };
}

/** A client that declares no modes supports forms. */
function canShowForms(capabilities: ClientCapabilities | undefined): boolean {
  const elicitation = capabilities?.elicitation;
  if (elicitation === undefined) return false;
  return elicitation.form !== undefined || elicitation.url === undefined;
}

function pushThrough(mcpReq: ServerContext["mcpReq"], capabilities: ClientCapabilities | undefined): Push {
  const roots = async (signal: AbortSignal): Promise<readonly string[]> => {
    const listed = await mcpReq.send({ method: "roots/list" }, { signal, timeout: ROOTS_MS });
    return listed.roots.map(({ uri }) => uri);
  };
  return {
    elicit: (form, signal) => mcpReq.elicitInput(form, { signal, timeout: NO_TIME_LIMIT }),
    roots: capabilities?.roots === undefined ? null : roots,
  };
}

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

export type Work = (call: ClientToolUse, signal: AbortSignal, onOutput: OnOutput) => Promise<ToolResult>;

interface Open {
  readonly form: ElicitRequestFormParams;
  readonly settle: PromiseWithResolvers<unknown>;
}

/**
 * One use of a tool. It may outlast the request that began it: since the revision 2026-07-28 a server cannot ask its
 * client anything, so a question becomes the answer to the request, and the work waits here until the client
 * retries.
 */
export class ClientToolUse {
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
  #exchange: ClientExchange | null;
  #questions = 0;
  #isOver = false;
  readonly #result: Promise<ToolResult>;

  constructor(name: string, input: unknown, exchange: ClientExchange, work: Work) {
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
  async round(exchange: ClientExchange): Promise<Round> {
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
