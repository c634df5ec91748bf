import { jsonSchema, type ModelMessage, streamText, type TextStreamPart, type ToolSet, tool } from "ai";
import { isTooDeep } from "../json/parse-json.ts";
import { charactersIn } from "../json/size.ts";
import { formatDuration } from "../sandbox/units.ts";
import type { RedactedPieces } from "../secrets/redactor.ts";
import { ModelFailure, nestedTooDeep } from "./failure.ts";
import type { AgentTool, Answer, AnswerEnd, AskedCall } from "./messages/conversation.ts";
import { modelFailureOf } from "./model-failure.ts";
import type { OpenedModel } from "./opened-model.ts";

export interface Question {
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

export interface Listener {
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
  { opened, system, messages, tools }: Question,
  listener: Listener,
  maxSilenceMs: number,
  signal: AbortSignal,
): Promise<Answer> {
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
  readonly #listener: Listener;
  readonly #redact: OpenedModel["redact"];
  readonly #pieces: RedactedPieces;
  readonly #calls = new Map<string, AskedCall>();
  /** Characters of inputs that came in parts, by call. */
  readonly #inputs = new Map<string, number>();
  #text = "";
  #characters = 0;
  #end: AnswerEnd | null = null;
  #tokens: Answer["tokens"] = { input: null, output: null };

  constructor(listener: Listener, { redact, redactPieces }: Pick<OpenedModel, "redact" | "redactPieces">) {
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

  answer(messages: readonly ModelMessage[]): Answer {
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
