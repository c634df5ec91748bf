import { openModel } from "../../src/agent/open-model.ts";
import type { OpenedModel } from "../../src/agent/spending.ts";
import type { ModelApi, ModelProvider } from "../../src/declarations/models/models.ts";
import { anthropicServer } from "./servers/anthropic-server.ts";
import type { Behaviours, ModelServer } from "./servers/model-server.ts";
import { openAiServer } from "./servers/openai-server.ts";

/** One way in which models are spoken to, and a server that speaks it. */
export interface SpokenApi {
  readonly api: ModelApi;
  /** A name that the package knows what to send for. */
  readonly model: string;
  serve(behaviours: Behaviours): Promise<ModelServer>;
}

export const APIS: readonly SpokenApi[] = [
  { api: "anthropic", model: "claude-sonnet-4-5", serve: anthropicServer },
  { api: "openai", model: "gpt-4.1", serve: openAiServer },
  { api: "openai-compatible", model: "local-1", serve: openAiServer },
];

/** The model at a server, opened as a run opens it. */
export async function openedAt(
  { api, model }: SpokenApi,
  url: string,
  { key = null, ...rest }: { readonly key?: string | null } & Partial<Omit<ModelProvider, "key">> = {},
): Promise<OpenedModel> {
  const source = key === null ? null : { kind: "env" as const, name: "KEY" };
  const provider: ModelProvider = { name: "here", api, url, key: source, images: true, prices: new Map(), ...rest };
  const sources = { providers: new Map([["here", provider]]), projectDir: "/", env: { KEY: key ?? undefined } };
  return await openModel({ kind: "provider", provider: "here", name: model }, sources, new AbortController().signal);
}
