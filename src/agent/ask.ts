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

/** More than any model answers at once; a server that goes on is cut off. */
const MAX_ANSWER_CHARACTERS = 4_000_000;
/** Few of so many are done, and each is told of. */
const MAX_CALLS = 10_000;
/** Of what stands for it in the conversation, which may hold what nobody hears: thoughts that are sealed, images, results. */
const MAX_KEPT_CHARACTERS = 2 * MAX_ANSWER_CHARACTERS;

export interface Listener {
  /** What the model says, as it comes. */
  text(piece: string): void;
  /** How many characters came of an answer that then broke off, where any did. The provider counts them all the same. */
  lost(characters: number): void;
}

/**
 * Asks a model once, and tells what it says as it comes. Rejects with a {@link ModelFailure} for whatever went wrong at the
 * provider or on the way to it, with the reason of `signal`, and for bugs with these themselves.
 */
export async function ask(
  { opened, system, messages, tools }: Question,
  listener: Listener,
  maxSilenceMs: number,
  signal: AbortSignal,
): Promise<Answer> {
  const silence = new AbortController();
  const hush = (): void => silence.abort(new ModelFailure("MODEL_UNAVAILABLE", silent(maxSilenceMs), 0));
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
      // The loop asks again by itself, also where an answer broke off in its middle.
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
    // What the package itself answers to a call that cannot be, the loop answers in its own words.
    return heard.answer(said.filter(({ role }) => role === "assistant"));
  } catch (error) {
    heard.end();
    if (heard.characters > 0) listener.lost(heard.characters);
    stopped.throwIfAborted();
    throw error;
  } finally {
    clearTimeout(timer);
    // Whatever still comes is not waited for.
    silence.abort(new Error("the answer is over"));
  }
}

/** What the stream throws, and tells as an error, is the provider's; what whoever hears it throws is not, and is a bug. */
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

function silent(maxSilenceMs: number): string {
  return `The model said nothing for ${formatDuration(maxSilenceMs)}.`;
}

/** The conversation is told whole each time: it stands on this machine, and not at a provider. */
const PROVIDER_OPTIONS = { openai: { store: false } };

/** Without anything to run: the package only tells what was asked for. */
function toolSet(tools: readonly AgentTool[]): ToolSet {
  return Object.fromEntries(
    tools.map(({ name, description, inputSchema }) => [
      name,
      tool({ description, inputSchema: jsonSchema(inputSchema as Parameters<typeof jsonSchema>[0]) }),
    ]),
  );
}

/** What came of an answer so far. Each of its texts came without the key, and two of them may still make one. */
class Heard {
  readonly #listener: Listener;
  readonly #redact: OpenedModel["redact"];
  readonly #pieces: RedactedPieces;
  readonly #calls = new Map<string, AskedCall>();
  /** Characters of inputs that came in pieces, by their call. */
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

  /** All that came so far. */
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
        // Which of them an answer is to could not be told.
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

  /** Tells what was held back, as nothing more comes. */
  end(): void {
    this.#tell(this.#pieces.end());
  }

  answer(messages: readonly ModelMessage[]): Answer {
    // Calls that came before it broke off are not done: the rest of the answer may have said otherwise.
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

const TOO_LARGE = `The model answered more than ${MAX_ANSWER_CHARACTERS} characters.`;
const TOO_MANY = `The model's answer has more than ${MAX_CALLS} calls.`;
const TWO_CALLS = "The model's answer has two calls with one id.";

const ENDS: Readonly<Record<string, AnswerEnd>> = {
  stop: "stop",
  "tool-calls": "calls",
  length: "length",
  "content-filter": "declined",
  // What a provider has no word for: what came is taken as it is.
  other: "stop",
};

function faultOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 2000) : "it is no call of a tool";
}
