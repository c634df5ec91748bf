import { z } from "zod";
import type { SecretSource } from "../../secrets/read-secret.ts";
import { nameFault, secretSource, sourceOf } from "../terms/names.ts";
import { type Exposure, secretFault, secretsPlace } from "../worker/exposure.ts";
import type { WorkerDefinition } from "../worker/worker.ts";
import { SCRIPT } from "../worker/worker-yaml.ts";
import type { Checked, KeyPath, YamlDocument } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";
import { map, namedMap } from "../yaml/shape.ts";

const MAX_PROVIDERS = 100;
const MAX_PRICES = 1000;

/** US dollars for a million tokens. */
const dollars = z.number().min(0).max(1_000_000);

const provider = map({
  /** Its protocol. Absent: the provider's name, if that is one of these. */
  api: z.enum(["anthropic", "openai", "openai-compatible"]).optional(),
  url: z
    .string()
    .max(2000)
    .superRefine((raw, context) => {
      const fault = urlFault(raw);
      if (fault !== null) context.addIssue({ code: "custom", message: fault });
    })
    .optional(),
  key: secretSource.optional(),
  /** Whether its models accept images in answers of tools. Absent: those of `anthropic` and `openai` do. */
  images: z.boolean().optional(),
  prices: namedMap(
    map({ input: dollars, output: dollars }),
    (name) => (name.length <= 200 ? null : "is too long"),
    MAX_PRICES,
  ).optional(),
}).superRefine(({ url, key }, context) => {
  if (url !== undefined && key !== undefined && urlFault(url) === null && isInTheClear(url)) {
    const message = "must use https, or be on this machine, because the `key` would be sent unencrypted";
    context.addIssue({ code: "custom", path: ["url"], message });
  }
});

/** The section `models` of `corral.yaml`: where agents' models are, by the name before the slash of `model:`. */
export const models = namedMap(provider, providerNameFault, MAX_PROVIDERS);

export type ModelsYaml = z.output<typeof models>;

function providerNameFault(name: string): string | null {
  return name === SCRIPT ? "is reserved: `script/FILE` plays a transcript" : nameFault(name);
}

function urlFault(raw: string): string | null {
  const url = URL.canParse(raw) ? new URL(raw) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return "must be an address such as `https://host/v1`";
  if (url.username !== "" || url.password !== "") return "must not contain a user or a password; use `key`";
  return url.search === "" && url.hash === "" ? null : "must not contain `?` or `#`";
}

/** True if the traffic could be read on the way. */
function isInTheClear(raw: string): boolean {
  const { protocol, hostname } = new URL(raw);
  return protocol === "http:" && !/^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname);
}

export type ModelApi = "anthropic" | "openai" | "openai-compatible";

/** Where models are, and how they are spoken to. */
export interface ModelProvider {
  readonly name: string;
  readonly api: ModelApi;
  /** Null: the provider's own address. */
  readonly url: string | null;
  /** Null: none is sent. */
  readonly key: SecretSource | null;
  /** Whether its models accept images. */
  readonly images: boolean;
  /** By model, in US dollars for a million tokens. */
  readonly prices: ReadonlyMap<string, ModelPrice>;
}

export interface ModelPrice {
  readonly input: number;
  readonly output: number;
}

type Declared = ModelsYaml extends ReadonlyMap<string, infer Provider> ? Provider : never;

/** Providers that need no declaration, and the environment variable of each one's key. */
const KNOWN: Readonly<Record<string, string>> = { anthropic: "ANTHROPIC_API_KEY", openai: "OPENAI_API_KEY" };

/**
 * The I/O step of the section `models`, which also checks every agent's model. A program that prints a key may not be
 * where a worker could change it.
 */
export async function resolveModels(
  declared: ModelsYaml,
  workers: ReadonlyMap<string, WorkerDefinition>,
  exposure: Exposure,
  problemAt: YamlDocument["problemAt"],
): Promise<Checked<ReadonlyMap<string, ModelProvider>>> {
  const problems: Problem[] = [];
  const providers = new Map(Object.keys(KNOWN).map((name) => [name, providerOf(name, name as ModelApi, {})]));
  for (const [name, provider] of declared) {
    const key = (...rest: KeyPath): KeyPath => ["models", name, ...rest];
    const api = provider.api ?? (name in KNOWN ? (name as ModelApi) : null);
    if (api === null) {
      problems.push(problemAt(key(), "needs `api`: `openai-compatible`, `openai` or `anthropic`"));
      continue;
    }
    if (api === "openai-compatible" && provider.url === undefined)
      problems.push(problemAt(key(), "needs `url`, the address of the server"));
    const wrong = await secretFault(sourceOf(provider.key ?? {}), exposure);
    if (wrong !== null) problems.push(problemAt(key("key", ...wrong.at), wrong.fault));
    providers.set(name, providerOf(name, api, provider));
  }
  // Where the section itself is wrong, its workers are not to blame.
  if (problems.length === 0) problems.push(...[...workers.values()].flatMap((worker) => faultsOf(worker, providers)));
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: providers };
}

/** Where keys come from on this machine: as much the project's own as `corral.yaml`. */
export function placesOfKeys(providers: ReadonlyMap<string, ModelProvider>, home: string | undefined): string[] {
  return [...providers.values()].flatMap(({ key }) => secretsPlace(key, home) ?? []);
}

function providerOf(name: string, api: ModelApi, { url, key, images, prices }: Partial<Declared>): ModelProvider {
  // A server of the project's own is not sent the key that is meant for the provider.
  const usual = url === undefined && api in KNOWN ? { env: KNOWN[api] } : {};
  return {
    name,
    api,
    url: url ?? null,
    key: sourceOf(key ?? usual),
    images: images ?? api !== "openai-compatible",
    prices: prices ?? new Map(),
  };
}

function faultsOf({ file, agent }: WorkerDefinition, providers: ReadonlyMap<string, ModelProvider>): Problem[] {
  if (agent === undefined || agent.model.kind === "script") return [];
  const { provider: name, name: model } = agent.model;
  const wrong = (path: string, message: string): Problem[] => [{ file, line: 1, column: 1, path, message }];
  const provider = providers.get(name);
  if (provider === undefined) {
    const known = [...providers.keys()].join(", ");
    return wrong(
      "model",
      `there is no provider \`${name}\`; declare it under \`models\` of corral.yaml (there are: ${known})`,
    );
  }
  if (agent.budget.costUsd === null || provider.prices.has(model)) return [];
  return wrong("limits.cost", `needs the price of \`${model}\`: add it under \`models.${name}.prices\``);
}
