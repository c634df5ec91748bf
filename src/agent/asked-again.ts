import { setTimeout as delay } from "node:timers/promises";
import {
  APICallError,
  jsonSchema,
  type ModelMessage,
  StreamProviderError,
  streamText,
  type TextStreamPart,
  type ToolSet,
  tool,
} from "ai";
import { charactersIn, isTooDeep } from "../json/parse-json.ts";
import type { RedactedPieces } from "../secrets/read-secret.ts";
import { formatDuration } from "../text/amounts.ts";
import {
  type AgentEvent,
  type AgentFailure,
  type AgentTool,
  type AnswerEnd,
  type AskedCall,
  type ModelAnswer,
  ModelFailure,
  type ModelTokens,
  nestedTooDeep,
  OwnFault,
} from "./events.ts";
import type { OpenedModel } from "./spending.ts";

const MAX_SHOWN_CHARACTERS = 1000;

/**
 * Translates an error of a provider: a status, an error event within an answer, a lost connection, or a response that the
 * package cannot parse. Throws errors that are bugs of Corral.
 */
export function modelFailureOf(error: unknown, redact: (text: string) => string, now: () => number): ModelFailure {
  if (error instanceof ModelFailure) return error;
  if (error instanceof OwnFault) throw error.cause;
  // The key is redacted before the text is cut, because a partial key would not be recognised.
  const shown = redact(shownError(error)).replaceAll(/\s+/g, " ").slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
  if (StreamProviderError.isInstance(error) && isRefusal(error))
    return new ModelFailure("MODEL_REFUSED", `The provider refused the request during its answer: ${shown}`);
  if (!APICallError.isInstance(error)) return unavailable(`The model's answer broke off: ${shown}`);
  const { statusCode, isRetryable, responseHeaders = {} } = error;
  if (statusCode === undefined) return unavailable(`The provider could not be reached: ${shown}`);
  // The response started successfully, so the request itself is not at fault.
  if (statusCode < 400) return unavailable(`The model's answer broke off: ${shown}`);
  const message = `The provider answered with HTTP status ${statusCode}: ${shown}`;
  return isRetryable
    ? unavailable(message, waitAsked(responseHeaders, now))
    : new ModelFailure("MODEL_REFUSED", message);
}

/** Decided by the status alone: some providers use one error type for every error during an answer. */
function isRefusal({ statusCode = 0, isRetryable }: StreamProviderError): boolean {
  return statusCode >= 400 && statusCode < 500 && !isRetryable;
}

function unavailable(message: string, retryAfterMs = 0): ModelFailure {
  return new ModelFailure("MODEL_UNAVAILABLE", message, retryAfterMs);
}

/** The delay that the provider requests, in milliseconds. */
function waitAsked(headers: Readonly<Record<string, string>>, now: () => number): number {
  const ms = Number(headers["retry-after-ms"]);
  if (headers["retry-after-ms"] !== undefined && ms >= 0) return ms;
  const after = headers["retry-after"];
  if (after === undefined) return 0;
  const seconds = Number(after);
  if (seconds >= 0) return seconds * 1000;
  const date = Date.parse(after);
  return Number.isNaN(date) ? 0 : Math.max(0, date - now());
}

/** Providers report errors during an answer in different shapes. The request is never shown. */
function shownError(error: unknown): string {
  if (!(error instanceof Error)) return JSON.stringify(error) ?? "no reason given";
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return `${error.message}${cause}`;
}

export interface ModelQuestion {
  readonly opened: OpenedModel;
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly AgentTool[];
}

/** More than any model answers at once; a longer answer is aborted. */
const MAX_ANSWER_CHARACTERS = 4_000_000;
/** Only a few of them are executed; each gets an answer. */
const MAX_CALLS = 10_000;
/** The limit for an answer's messages in the conversation, which may also contain sealed reasoning, images and results. */
const MAX_KEPT_CHARACTERS = 2 * MAX_ANSWER_CHARACTERS;

export interface ModelListener {
  /** Text of the model, as it comes. */
  text(piece: string): void;
  /** Characters of an answer that broke off. The provider charges for them. */
  lost(characters: number): void;
}

/**
 * Asks a model once and reports its text as it comes. Rejects with a {@link ModelFailure} for errors of the provider or the
 * connection, with the reason of `signal`, and with the error itself for bugs.
 */
export async function ask(
  { opened, system, messages, tools }: ModelQuestion,
  listener: ModelListener,
  maxSilenceMs: number,
  signal: AbortSignal,
): Promise<ModelAnswer> {
  const silence = new AbortController();
  const silent = `The model sent nothing for ${formatDuration(maxSilenceMs)}.`;
  const hush = (): void => silence.abort(new ModelFailure("MODEL_UNAVAILABLE", silent, 0));
  let timer = setTimeout(hush, maxSilenceMs);
  const heard = new Heard(listener, opened);
  const stopped = AbortSignal.any([signal, silence.signal]);
  const failed = (error: unknown): never => {
    throw modelFailureOf(error, opened.redact, Date.now);
  };
  try {
    const result = streamText({
      model: opened.model,
      instructions: system,
      messages: [...messages],
      tools: toolSet(tools),
      // The loop itself retries, also after an answer that broke off.
      maxRetries: 0,
      providerOptions: PROVIDER_OPTIONS,
      abortSignal: stopped,
      onError: () => {},
    });
    for await (const part of comingFrom(result.stream, failed)) {
      clearTimeout(timer);
      timer = setTimeout(hush, maxSilenceMs);
      heard.hear(part);
    }
    stopped.throwIfAborted();
    const { messages: said } = await Promise.resolve(result.response).catch(failed);
    // The loop answers invalid calls in its own words, not in those of the package.
    return heard.answer(said.filter(({ role }) => role === "assistant"));
  } catch (error) {
    heard.end();
    if (heard.characters > 0) listener.lost(heard.characters);
    stopped.throwIfAborted();
    throw error;
  } finally {
    clearTimeout(timer);
    // The rest of the stream is not awaited.
    silence.abort(new Error("the answer is over"));
  }
}

/** Errors that the stream throws or reports come from the provider; errors thrown by its consumer are bugs. */
async function* comingFrom(
  stream: AsyncIterable<TextStreamPart<ToolSet>>,
  failed: (error: unknown) => never,
): AsyncGenerator<TextStreamPart<ToolSet>, void, undefined> {
  const parts = stream[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await parts.next().catch(failed);
      if (next.done === true) return;
      if (next.value.type === "error") failed(next.value.error);
      yield next.value;
    }
  } finally {
    await parts.return?.();
  }
}

/** The whole conversation is sent each time: it is stored on this machine, not at the provider. */
const PROVIDER_OPTIONS = { openai: { store: false } };

/** Without `execute`: the package only reports the calls. */
function toolSet(tools: readonly AgentTool[]): ToolSet {
  return Object.fromEntries(
    tools.map(({ name, description, inputSchema }) => [
      name,
      tool({ description, inputSchema: jsonSchema(inputSchema as Parameters<typeof jsonSchema>[0]) }),
    ]),
  );
}

/** The answer so far. Each text part came without the key, but two parts together could still contain it. */
class Heard {
  readonly #listener: ModelListener;
  readonly #redact: OpenedModel["redact"];
  readonly #pieces: RedactedPieces;
  readonly #calls = new Map<string, AskedCall>();
  /** Characters of inputs that came in parts, by call. */
  readonly #inputs = new Map<string, number>();
  #text = "";
  #characters = 0;
  #end: AnswerEnd | null = null;
  #tokens: ModelAnswer["tokens"] = { input: null, output: null };

  constructor(listener: ModelListener, { redact, redactPieces }: Pick<OpenedModel, "redact" | "redactPieces">) {
    this.#listener = listener;
    this.#redact = redact;
    this.#pieces = redactPieces();
  }

  /** All characters so far. */
  get characters(): number {
    return this.#characters;
  }

  hear(part: TextStreamPart<ToolSet>): void {
    switch (part.type) {
      case "text-delta":
        this.#count(part.text.length);
        this.#text += part.text;
        this.#tell(this.#pieces.add(part.text));
        return;
      case "reasoning-delta":
        this.#count(part.text.length);
        return;
      case "tool-input-delta":
        this.#inputs.set(part.id, (this.#inputs.get(part.id) ?? 0) + part.delta.length);
        this.#count(part.delta.length);
        return;
      case "tool-call": {
        if (isTooDeep(part.input)) throw nestedTooDeep();
        this.#count(Math.max(0, JSON.stringify(part.input ?? null).length - (this.#inputs.get(part.toolCallId) ?? 0)));
        if (this.#calls.size >= MAX_CALLS) throw new ModelFailure("ANSWER_TOO_LARGE", TOO_MANY);
        // An answer could not be assigned to one of two calls with the same id.
        if (this.#calls.has(part.toolCallId)) throw new ModelFailure("MODEL_UNAVAILABLE", TWO_CALLS, 0);
        const fault = part.invalid === true ? faultOf(part.error) : null;
        this.#calls.set(part.toolCallId, { id: part.toolCallId, tool: part.toolName, input: part.input, fault });
        return;
      }
      case "finish-step": {
        const { inputTokens = null, outputTokens = null } = part.usage;
        this.#tokens = { input: inputTokens, output: outputTokens };
        this.#end = ENDS[part.finishReason] ?? null;
        return;
      }
      default:
    }
  }

  /** Reports the text that was held back; no more text follows. */
  end(): void {
    this.#tell(this.#pieces.end());
  }

  answer(messages: readonly ModelMessage[]): ModelAnswer {
    // Calls of a broken answer are not executed: the rest of the answer might have changed them.
    if (this.#end === null) throw new ModelFailure("MODEL_UNAVAILABLE", "The model's answer broke off.", 0);
    if (charactersIn(messages) > MAX_KEPT_CHARACTERS) throw new ModelFailure("ANSWER_TOO_LARGE", TOO_LARGE);
    this.end();
    const calls = [...this.#calls.values()];
    const end = calls.length > 0 && this.#end === "stop" ? "calls" : this.#end;
    const text = this.#redact(this.#text);
    return { text, calls, end, tokens: this.#tokens, messages, characters: this.#characters };
  }

  #tell(text: string): void {
    if (text !== "") this.#listener.text(text);
  }

  #count(characters: number): void {
    this.#characters += characters;
    if (this.#characters > MAX_ANSWER_CHARACTERS) throw new ModelFailure("ANSWER_TOO_LARGE", TOO_LARGE);
  }
}

const TOO_LARGE = `The model's answer has more than ${MAX_ANSWER_CHARACTERS} characters.`;
const TOO_MANY = `The model's answer has more than ${MAX_CALLS} calls.`;
const TWO_CALLS = "The model's answer has two calls with the same id.";

const ENDS: Readonly<Record<string, AnswerEnd>> = {
  stop: "stop",
  "tool-calls": "calls",
  length: "length",
  "content-filter": "declined",
  // The provider gives no reason; the answer is used as it is.
  other: "stop",
};

function faultOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 2000) : "it is not a tool call";
}

/** Retries and their delays. An overloaded provider recovers within a minute or stays overloaded. */
export interface RetryDelays {
  readonly attempts: number;
  readonly firstWaitMs: number;
  readonly maxWaitMs: number;
  /** The longest silence within an answer before it counts as broken off. */
  readonly maxSilenceMs: number;
}

/** Providers send something every few seconds, most of them also while a model reasons. */
export const PATIENCE: RetryDelays = { attempts: 5, firstWaitMs: 1000, maxWaitMs: 60_000, maxSilenceMs: 180_000 };

export type ModelOutcome =
  | { readonly ok: true; readonly answer: ModelAnswer }
  | { readonly ok: false; readonly failure: AgentFailure };

/** Called when the model is asked once more. What it returns is called with the end of that request: tokens, and a code if it failed. */
export type OnAsking = () => (tokens: ModelTokens, code: string | null) => void;

interface AskingAgain extends Pick<ModelListener, "lost"> {
  readonly emit: (event: AgentEvent) => void;
  readonly asking?: OnAsking | undefined;
  /** The limit that is used up, or null. Answers that broke off count too. */
  readonly spent: () => AgentFailure | null;
}

/** Asks until there is an answer, a final error, or no attempt left. Rejects with the reason of `signal`, and for bugs. */
export async function askAgain(
  question: ModelQuestion,
  patience: RetryDelays,
  { emit, lost, spent, asking }: AskingAgain,
  signal: AbortSignal,
): Promise<ModelOutcome> {
  const listener: ModelListener = { text: (piece) => emit({ kind: "text", piece }), lost };
  for (let attempt = 1; ; attempt += 1) {
    const asked = asking?.();
    try {
      const answer = await ask(question, listener, patience.maxSilenceMs, signal);
      asked?.(answer.tokens, null);
      return { ok: true, answer };
    } catch (failure) {
      asked?.(UNKNOWN, signal.aborted ? "CANCELLED" : failure instanceof ModelFailure ? failure.code : "INTERNAL");
      signal.throwIfAborted();
      if (!(failure instanceof ModelFailure)) throw failure;
      const waitMs = waitBefore(attempt, failure, patience);
      if (waitMs === null) return { ok: false, failure };
      const limit = spent();
      if (limit !== null) return { ok: false, failure: limit };
      emit({ kind: "retry", reason: failure.message, waitMs });
      await delay(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }
}

/** The provider reports no tokens for an answer that broke off. */
const UNKNOWN: ModelTokens = { input: null, output: null };

/** The delay before the next attempt; null: no further attempt. The provider's own delay applies up to `maxWaitMs`. */
function waitBefore(attempt: number, { retryAfterMs }: ModelFailure, patience: RetryDelays): number | null {
  if (retryAfterMs === null || attempt >= patience.attempts || retryAfterMs > patience.maxWaitMs) return null;
  const backoff = Math.min(patience.firstWaitMs * 2 ** (attempt - 1), patience.maxWaitMs);
  // Random jitter, so that many agents refused at once do not retry at once.
  return Math.round(Math.max(retryAfterMs, backoff * (0.75 + Math.random() / 2)));
}
