import { z } from "zod";
import { nameFault, secretSource } from "../terms/names.ts";
import { SCRIPT } from "../worker/worker-yaml.ts";
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
