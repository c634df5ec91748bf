import { parseToml, type TomlTable, tableAt } from "../../toml/toml.ts";
import {
  hasCredentials,
  insideUrl,
  namedPlace,
  parseRegistryUrl,
  pathsBelow,
  type Registries,
  type Registry,
  type RegistryMachine,
  settingsAt,
  userPlace,
} from "./registry.ts";

/** The index of crates.io, and the host that it names for its files. */
export const PUBLIC_INDEX = "https://index.crates.io/";
export const PUBLIC_CRATES = "https://static.crates.io/";

/** One source may be replaced by another, which is replaced in turn. */
const MAX_REPLACEMENTS = 10;

/** What cargo uses for crates.io: the user's `config.toml`. That of a project is not read, since a worker may write it. */
export async function cargoRegistries(machine: RegistryMachine): Promise<Registries> {
  const { env } = machine;
  const home = namedPlace(env.CARGO_HOME) ?? userPlace(machine, ".cargo");
  const text =
    home === null ? null : ((await settingsAt(`${home}/config.toml`)) ?? (await settingsAt(`${home}/config`)));
  const parsed = parseToml(text ?? "");
  if (!parsed.ok) return { registries: [], notes: ["The settings of cargo cannot be read; no registry is used."] };
  const replaced = replacementOf(parsed.table, env);
  if (replaced === null) return { registries: defaults(), notes: [] };
  const sparse = replaced.startsWith("sparse+") ? replaced.slice("sparse+".length) : null;
  const url = sparse === null ? null : parseRegistryUrl(sparse);
  if (url === null || !url.ok) {
    const reason = url === null ? "is not a sparse registry" : url.reason;
    return { registries: [], notes: [`What cargo uses for crates.io ${reason}; no registry is used.`] };
  }
  const notes = hasCredentials(sparse ?? "") ? ["The registry of cargo names a user, who is left out."] : [];
  // Its index names the place of its files, most often on the same host.
  const registry: Registry = { kind: "crates", url: url.url, use: [`sparse+${insideUrl(url.url)}`] };
  return { registries: [registry], notes };
}

function defaults(): Registry[] {
  return [
    { kind: "crates", url: PUBLIC_INDEX, ...pathsBelow(PUBLIC_INDEX), use: [`sparse+${insideUrl(PUBLIC_INDEX)}`] },
    { kind: "crates", url: PUBLIC_CRATES, paths: ["/crates/**"], use: [] },
  ];
}

/** The address that replaces crates.io; null: nothing does. */
function replacementOf(settings: TomlTable, env: RegistryMachine["env"]): string | null {
  let name = "crates-io";
  for (let count = 0; count < MAX_REPLACEMENTS; count += 1) {
    const source = tableAt(settings, "source", name);
    const next = source?.["replace-with"];
    if (typeof next === "string") {
      name = next;
      continue;
    }
    if (name === "crates-io") return null;
    const variable = env[`CARGO_REGISTRIES_${name.toUpperCase().replaceAll("-", "_")}_INDEX`];
    const address = source?.registry ?? variable ?? tableAt(settings, "registries", name)?.index;
    return typeof address === "string" ? address : "";
  }
  return "";
}
