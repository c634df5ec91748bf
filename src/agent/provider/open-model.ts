import type { ModelProvider } from "../../declarations/models/models.ts";
import type { ModelRef } from "../../declarations/worker/agent.ts";
import { type Env, readSecret, SecretUnavailable } from "../../secrets/read-secret.ts";
import { Redactor } from "../../secrets/redactor.ts";
import type { Patience } from "../asked-again.ts";
import { ModelFailure } from "../failure.ts";
import type { LanguageModel, OpenedModel } from "../opened-model.ts";
import { openScript } from "../script/open-script.ts";
import { redacted } from "./redacted.ts";

export interface ModelSources {
  readonly providers: ReadonlyMap<string, ModelProvider>;
  /** Absolute. */
  readonly projectDir: string;
  /** Where keys are: Corral's own environment, which no cell ever sees. */
  readonly env: Env;
  /** Absent: `PATIENCE`. */
  readonly patience?: Patience;
}

/** Rejects with `ModelFailure` where there is no such provider or no key. The provider's package is loaded only now. */
export async function openModel(ref: ModelRef, sources: ModelSources, signal: AbortSignal): Promise<OpenedModel> {
  if (ref.kind === "script") return await openScript(ref.file, sources.projectDir);
  const provider = sources.providers.get(ref.provider);
  if (provider === undefined) throw new ModelFailure("MODEL_REFUSED", `There is no provider ${ref.provider}.`);
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

/** Exactly as it is sent: a header has no blanks around it, and what a server repeats must be known for what it is. */
async function keyOf({ name, key }: ModelProvider, env: Env, signal: AbortSignal): Promise<string | null> {
  if (key === null) return null;
  const unfit = (why: string) =>
    new ModelFailure("MODEL_KEY", `The key of the provider ${name} is not to be had: ${why}.`);
  const secret = await readSecret(key, env, signal).catch((error: unknown) => {
    throw error instanceof SecretUnavailable ? unfit(error.message) : error;
  });
  const sent = secret.trim();
  if (!/^[\x20-\x7e]+$/.test(sent)) throw unfit("it has characters that none can be sent with, or only blanks");
  return sent;
}

/** The packages would else look for a key in the environment by themselves. */
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

/** A key that is meant for one server is not sent on to another; and no answer fills the memory. */
const straightFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, { ...init, redirect: "error" });
  if (response.body === null) return response;
  return new Response(response.body.pipeThrough(response.ok ? bounded() : beginning()), response);
};

/** Far more than the longest answer with everything that is sent around each piece of it. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;
/** Of what is said beside a status that says it all. */
const MAX_ERROR_BYTES = 1024 * 1024;

type Bytes = TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>;

/** The rest is not read, and what came is taken for all of it. */
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
      if (bytes > MAX_RESPONSE_BYTES) throw new Error(`the server answered more than ${MAX_RESPONSE_BYTES} bytes`);
      controller.enqueue(chunk);
    },
  });
}
