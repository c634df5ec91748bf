import type { PackageKind } from "../../../sandbox/network/rule.ts";
import type { Env } from "../../../secrets/read-secret.ts";
import { cargoRegistries } from "./cargo.ts";
import { debianRegistries } from "./debian.ts";
import { pipRegistries } from "./pip.ts";
import {
  configPlace,
  hasCredentials,
  insideUrl,
  namedPlace,
  parseRegistryUrl,
  pathsBelow,
  type Registries,
  type Registry,
  type RegistryMachine,
  settingsAt,
  systemPlace,
  userPlace,
} from "./registry.ts";

const PUBLIC = "https://registry.npmjs.org/";

/** Where the settings of the whole system and those of npm's own package are, by how npm was installed. */
const OF_THE_SYSTEM = [
  "usr/lib/node_modules/npm/npmrc",
  "usr/local/lib/node_modules/npm/npmrc",
  "usr/share/nodejs/npm/npmrc",
  "usr/etc/npmrc",
  "usr/local/etc/npmrc",
  "etc/npmrc",
];

/** A person has a few scopes. */
const MAX_SCOPES = 50;

/**
 * The registries of npm: the variables, then the user's `.npmrc`, then the system's. The `.npmrc` of a project is not read,
 * since a worker may write it.
 */
async function npmRegistries(machine: RegistryMachine): Promise<Registries> {
  const { env } = machine;
  const user = namedPlace(configValue(env, "userconfig")) ?? userPlace(machine, ".npmrc");
  const global = namedPlace(configValue(env, "globalconfig"));
  const places = [...OF_THE_SYSTEM.map((path) => systemPlace(machine, path)), global, user];
  const settings = new Map<string, string>();
  for (const place of places) {
    for (const [key, value] of parseNpmrc((await settingsAt(place)) ?? "", env)) settings.set(key, value);
  }
  const notes: string[] = [];
  const registry = (key: string, raw: string, word: (url: string) => string): Registry | null => {
    const parsed = parseRegistryUrl(raw);
    if (!parsed.ok) notes.push(`npm's setting \`${key}\` ${parsed.reason}; it is not used.`);
    if (hasCredentials(raw)) notes.push(`npm's setting \`${key}\` names a user, who is left out.`);
    return parsed.ok
      ? { kind: "npm", url: parsed.url, ...pathsBelow(parsed.url), use: [word(insideUrl(parsed.url))] }
      : null;
  };
  const named = configValue(env, "registry") ?? settings.get("registry") ?? PUBLIC;
  const scopes = [...settings].filter(([key]) => /^@[a-z0-9][a-z0-9._-]*:registry$/.test(key)).slice(0, MAX_SCOPES);
  const registries = [
    registry("registry", named, (url) => url),
    ...scopes.map(([key, raw]) => registry(key, raw, (url) => `${key.replace(/:registry$/, "")} ${url}`)),
  ].filter((one) => one !== null);
  if ([...settings.keys()].some((key) => /^\/\/.*:_(auth|authToken|password)$/.test(key)))
    notes.push(
      "npm's settings have keys for registries, which no cell gets; add a rule with `set` for such a registry.",
    );
  return { registries, notes };
}

/** The settings of a `.npmrc`. Lines that are none are ignored, as npm does. */
function parseNpmrc(text: string, env: Env): ReadonlyMap<string, string> {
  const settings = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const [, key, value] = /^\s*([^\s=;#[\]][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined) settings.set(key, withVariables(withoutQuotes(value), env));
  }
  return settings;
}

/** A setting from the environment: `npm_config_NAME`, in any case. */
function configValue(env: Env, name: string): string | undefined {
  const key = Object.keys(env).find((each) => each.toLowerCase() === `npm_config_${name}`);
  const value = key === undefined ? undefined : env[key];
  return value === "" ? undefined : value;
}

function withoutQuotes(value: string): string {
  return /^(["']).*\1$/.test(value) ? value.slice(1, -1) : value;
}

/** npm replaces `${NAME}`, and leaves it if there is no such variable. */
function withVariables(value: string, env: Env): string {
  return value.replace(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (whole, name: string) => env[name] ?? whole);
}

const PUBLIC_PROXY = "https://proxy.golang.org";
const PUBLIC_SUMDB = "sum.golang.org";

const MAX_PROXIES = 10;

/** The proxies and the checksum database of Go: the variables, then what `go env -w` wrote, then what Go came with. */
async function goRegistries(machine: RegistryMachine): Promise<Registries> {
  const { env } = machine;
  const settings = new Map<string, string>();
  const own = namedPlace(env.GOENV) ?? (env.GOENV === "off" ? null : configPlace(machine, "go/env"));
  for (const place of [systemPlace(machine, "usr/local/go/go.env"), own]) {
    for (const line of ((await settingsAt(place)) ?? "").split(/\r?\n/)) {
      const [, key, value] = /^(GO[A-Z]+)=(.*)$/.exec(line) ?? [];
      if (key !== undefined && value !== undefined) settings.set(key, value);
    }
  }
  const setting = (key: string) => (env[key] ? env[key] : settings.get(key));
  const notes: string[] = [];
  const sumdb = (setting("GOSUMDB") ?? PUBLIC_SUMDB).trim();
  const further = sumdb === "off" ? ["sumdb off"] : [];
  const registries = [
    ...proxiesOf(setting("GOPROXY") ?? `${PUBLIC_PROXY},direct`, further, notes),
    ...(sumdb === "off" ? [] : sumdbOf(sumdb, setting("GONOSUMDB") ?? setting("GOPRIVATE"), notes)),
  ];
  return { registries, notes };
}

/** `direct` would need the hosts of all modules, so it is left out. */
function proxiesOf(raw: string, further: readonly string[], notes: string[]): Registry[] {
  const urls: string[] = [];
  for (const word of raw.split(/[,|]/).slice(0, MAX_PROXIES)) {
    if (word === "direct" || word === "off" || word === "") continue;
    const parsed = parseRegistryUrl(word);
    if (parsed.ok) urls.push(parsed.url);
    else notes.push(`A proxy of Go ${parsed.reason}; it is not used.`);
  }
  // Their order counts, and rules have none of their own.
  const inOrder = urls.map((url) => insideUrl(url).replace(/\/$/, "")).join(",");
  return urls.map((url, index) => ({
    kind: "go",
    url,
    ...pathsBelow(url),
    use: index === 0 ? [inOrder, ...further] : [],
  }));
}

/** `NAME`, `NAME+KEY`, or either with an address. */
function sumdbOf(raw: string, none: string | undefined, notes: string[]): Registry[] {
  const [named = "", address, ...more] = raw.split(/\s+/);
  const parsed = parseRegistryUrl(address ?? `https://${named.split("+")[0]}`);
  if (!parsed.ok || more.length > 0 || !/^[A-Za-z0-9.+/=-]+$/.test(named)) {
    notes.push("The checksum database of Go cannot be read from GOSUMDB; it is not used.");
    return [];
  }
  const { url } = parsed;
  const nosumdb = none !== undefined && /^[\w.,*/?[\]-]+$/.test(none) ? [`nosumdb ${none}`] : [];
  const use = [`sumdb ${named} ${insideUrl(url).replace(/\/$/, "")}`, ...nosumdb];
  return [{ kind: "go", url, ...pathsBelow(url), use }];
}

/** The registries of the presets that something uses, as this machine is configured for them. */
export type RegistryMap = ReadonlyMap<PackageKind, Registries>;

const READERS: Readonly<Record<PackageKind, (machine: RegistryMachine) => Promise<Registries>>> = {
  npm: npmRegistries,
  pypi: pipRegistries,
  debian: debianRegistries,
  crates: cargoRegistries,
  go: goRegistries,
};

/** Reads the settings of these tools. The tools themselves are not run, and nothing is asked on the network. */
export async function readRegistries(kinds: Iterable<PackageKind>, machine: RegistryMachine): Promise<RegistryMap> {
  const read = [...new Set(kinds)].map(async (kind) => [kind, await READERS[kind](machine)] as const);
  return new Map(await Promise.all(read));
}
