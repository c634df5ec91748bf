import { type LanguageModelMiddleware, wrapLanguageModel } from "ai";
import type { ModelProvider } from "../declarations/models/models.ts";
import type { ModelRef } from "../declarations/worker/worker-yaml.ts";
import { isTooDeep } from "../json/parse-json.ts";
import { type Env, type RedactedPieces, Redactor, readSecret, SecretUnavailable } from "../secrets/read-secret.ts";
import type { RetryDelays } from "./asked-again.ts";
import { ModelFailure, nestedTooDeep, OwnFault } from "./events.ts";
import { openScript } from "./open-script.ts";
import type { LanguageModel, OpenedModel, StreamPart } from "./spending.ts";

/**
 * Wraps a model so that its output never contains the key. A server that repeats the key, as text or as a tool's input, cannot
 * bring it into a cell, a transcript or a record.
 */
export function redacted(model: LanguageModel, redactor: Redactor): LanguageModel {
  const middleware: LanguageModelMiddleware = {
    specificationVersion: "v4",
    wrapStream: async ({ doStream }) => {
      const { stream } = await doStream();
      // The request and the response headers are dropped.
      return { stream: stream.pipeThrough(cleaning(redactor)) };
    },
  };
  return wrapLanguageModel({ model, middleware });
}

function cleaning(redactor: Redactor): TransformStream<StreamPart, StreamPart> {
  const cleaner = new Cleaner(redactor);
  return new TransformStream({
    transform(part, controller) {
      try {
        for (const clean of cleaner.cleaned(part)) controller.enqueue(clean);
      } catch (error) {
        throw error instanceof ModelFailure ? error : new OwnFault(error);
      }
    },
  });
}

class Cleaner {
  readonly #redactor: Redactor;
  readonly #texts = new Map<string, RedactedPieces>();

  constructor(redactor: Redactor) {
    this.#redactor = redactor;
  }

  /** The redacted parts for one part: none, the part itself, or held-back text followed by the part. */
  cleaned(part: StreamPart): StreamPart[] {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        return [{ ...part, delta: this.#piecesOf(`${part.type} ${part.id}`).add(part.delta) }];
      case "text-end":
      case "reasoning-end": {
        const type = part.type === "text-end" ? "text-delta" : "reasoning-delta";
        const delta = this.#piecesOf(`${type} ${part.id}`).end();
        return delta === "" ? [part] : [{ type, id: part.id, delta }, part];
      }
      // The complete input comes with the call. Of the parts only the length is used, and a key could be split between two.
      case "tool-input-delta":
        return [{ ...part, delta: " ".repeat(part.delta.length) }];
      case "raw":
        return [];
      // A provider's warnings must not become warnings of the process.
      case "stream-start":
        return [{ ...part, warnings: [] }];
      case "tool-call":
        return [{ ...part, ...redactedCall(part, this.#redactor) }];
      default:
        return [part];
    }
  }

  #piecesOf(id: string): RedactedPieces {
    const pieces = this.#texts.get(id) ?? this.#redactor.pieces();
    this.#texts.set(id, pieces);
    return pieces;
  }
}

/** The input is JSON, which can write a key with escapes, so it is parsed, redacted and serialised again. */
function redactedCall({ toolCallId, toolName, input }: StreamPart & { type: "tool-call" }, redactor: Redactor) {
  const named = { toolCallId: redactor.text(toolCallId), toolName: redactor.text(toolName) };
  const clean = redactor.text(input);
  let value: unknown;
  try {
    value = JSON.parse(clean);
  } catch {
    return { ...named, input: clean };
  }
  if (isTooDeep(value)) throw nestedTooDeep();
  return { ...named, input: JSON.stringify(redactor.value(value)) };
}

export interface ModelSources {
  readonly providers: ReadonlyMap<string, ModelProvider>;
  /** Absolute. */
  readonly projectDir: string;
  /** Corral's own environment, which contains the keys. No cell ever sees it. */
  readonly env: Env;
  /** Absent: `PATIENCE`. */
  readonly patience?: RetryDelays;
}

/** Rejects with `ModelFailure` if the provider or its key does not exist. Loads the provider's package on demand. */
export async function openModel(ref: ModelRef, sources: ModelSources, signal: AbortSignal): Promise<OpenedModel> {
  if (ref.kind === "script") return await openScript(ref.file, sources.projectDir);
  const provider = sources.providers.get(ref.provider);
  if (provider === undefined)
    throw new ModelFailure(
      "MODEL_REFUSED",
      `There is no provider ${ref.provider}. Declare it in \`models\` of corral.yaml, or correct \`model\` of the worker.`,
    );
  const key = await keyOf(provider, sources.env, signal);
  const redactor = new Redactor(key === null ? [] : [key]);
  return {
    name: `${ref.provider}/${ref.name}`,
    model: redacted(await LOADERS[provider.api](provider, ref.name, key ?? NO_KEY), redactor),
    images: !provider.images ? "never" : provider.api === "openai-compatible" ? "after the result" : "in the result",
    price: provider.prices.get(ref.name) ?? null,
    redact: (text) => redactor.text(text),
    redactPieces: () => redactor.pieces(),
    redactValue: (value) => redactor.value(value),
  };
}

/** The key exactly as it is sent, without surrounding white space, so that it is recognised if a server repeats it. */
async function keyOf({ name, key }: ModelProvider, env: Env, signal: AbortSignal): Promise<string | null> {
  if (key === null) return null;
  const unfit = (why: string) => new ModelFailure("MODEL_KEY", `There is no API key for the provider ${name}: ${why}.`);
  const secret = await readSecret(key, env, signal).catch((error: unknown) => {
    throw error instanceof SecretUnavailable ? unfit(error.message) : error;
  });
  const sent = secret.trim();
  if (!/^[\x20-\x7e]+$/.test(sent))
    throw unfit("the key is empty or has characters that an HTTP header cannot contain");
  return sent;
}

/** Without a key the packages would search the environment for one. */
const NO_KEY = "none";

type Loader = (provider: ModelProvider, model: string, key: string) => Promise<LanguageModel>;

const LOADERS: Readonly<Record<ModelProvider["api"], Loader>> = {
  async anthropic({ url }, model, apiKey) {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic({ apiKey, fetch: straightFetch, baseURL: url ?? "https://api.anthropic.com/v1" })(model);
  },
  async openai({ url }, model, apiKey) {
    const { createOpenAI } = await import("@ai-sdk/openai");
    return createOpenAI({ apiKey, fetch: straightFetch, baseURL: url ?? "https://api.openai.com/v1" })(model);
  },
  async "openai-compatible"({ name, url }, model, apiKey) {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    const key = apiKey === NO_KEY ? {} : { apiKey };
    return createOpenAICompatible({ name, ...key, fetch: straightFetch, baseURL: url ?? "", includeUsage: true })(
      model,
    );
  },
};

/** Does not follow redirects, so that a key reaches only its own server, and bounds the size of responses. */
const straightFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, { ...init, redirect: "error" });
  if (response.body === null) return response;
  return new Response(response.body.pipeThrough(response.ok ? bounded() : beginning()), response);
};

/** Far more than the longest answer with its protocol overhead. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;
/** The limit for the body of an error response. */
const MAX_ERROR_BYTES = 1024 * 1024;

type Bytes = TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>;

/** Passes on the first bytes and ignores the rest. */
function beginning(): Bytes {
  let left = MAX_ERROR_BYTES;
  return new TransformStream({
    transform(chunk, controller) {
      controller.enqueue(chunk.subarray(0, left));
      left -= chunk.byteLength;
      if (left <= 0) controller.terminate();
    },
  });
}

function bounded(): Bytes {
  let bytes = 0;
  return new TransformStream({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (bytes > MAX_RESPONSE_BYTES) throw new Error(`the response has more than ${MAX_RESPONSE_BYTES} bytes`);
      controller.enqueue(chunk);
    },
  });
}
