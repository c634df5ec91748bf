import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { PackageKind } from "../../../sandbox/network/rule.ts";
import type { Env } from "../../../secrets/read-secret.ts";
import {
  cargoRegistries,
  configPlace,
  hasCredentials,
  insideUrl,
  namedPlace,
  parseRegistryUrl,
  pathsBelow,
  pipRegistries,
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

/** Images have these in their own lists. */
const PUBLIC_ARCHIVES = [
  "http://deb.debian.org/debian/",
  "http://deb.debian.org/debian-security/",
  "http://security.debian.org/debian-security/",
];
const PUBLIC_HOSTS = ["deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com"];

const MAX_FILES = 100;
const MAX_SOURCES = 100;

/**
 * The sources of apt. If this machine uses the public hosts alone, a cell uses its image's own list, which has the release of
 * the image. Else it gets the list of this machine: the release of the image must then be the same.
 */
async function debianRegistries(machine: RegistryMachine): Promise<Registries> {
  const notes: string[] = [];
  const found: { readonly url: string; readonly line: string }[] = [];
  for (const source of (await sourcesOf(machine)).slice(0, MAX_SOURCES)) {
    const parsed = parseRegistryUrl(source.uri);
    if (!parsed.ok) notes.push(`A source of apt ${parsed.reason}; it is not used.`);
    if (hasCredentials(source.uri)) notes.push("A source of apt names a user, who is left out.");
    if (!parsed.ok) continue;
    const line = lineOf(source, insideUrl(parsed.url));
    if (line === null) notes.push("A source of apt has a key or a name that cells do not have; it is not used.");
    else found.push({ url: parsed.url, line });
  }
  const isPublic = found.every(({ url }) => PUBLIC_HOSTS.includes(new URL(url).hostname));
  const registries = isPublic
    ? [...new Set([...PUBLIC_ARCHIVES, ...found.map(({ url }) => url)])].map((url) => registryOf(url, ["image"]))
    : [...Map.groupBy(found, ({ url }) => url)].map(([url, sources]) =>
        registryOf(
          url,
          sources.map(({ line }) => line),
        ),
      );
  return { registries, notes };
}

function registryOf(url: string, use: readonly string[]): Registry {
  return { kind: "debian", url, ...pathsBelow(url), use };
}

async function sourcesOf(machine: RegistryMachine): Promise<AptSource[]> {
  const parts = systemPlace(machine, "etc/apt/sources.list.d");
  const names = (await readdir(parts).catch(() => [])).sort().slice(0, MAX_FILES);
  const sources = parseSourcesList((await settingsAt(systemPlace(machine, "etc/apt/sources.list"))) ?? "");
  for (const name of names) {
    const parse = name.endsWith(".list") ? parseSourcesList : name.endsWith(".sources") ? parseDeb822 : null;
    if (parse !== null) sources.push(...parse((await settingsAt(join(parts, name))) ?? ""));
  }
  return sources;
}

/** Keys of Debian's own packages are in every image; those that an administrator added are not. */
const IMAGES_KEY = /^\/usr\/share\/keyrings\/[\w.+-]+$/;

function lineOf({ suite, components, signedBy }: AptSource, url: string): string | null {
  const words = [suite, ...components];
  if (!words.every((word) => /^[A-Za-z0-9._/+~-]+$/.test(word))) return null;
  if (signedBy !== null && !IMAGES_KEY.test(signedBy)) return null;
  const options = signedBy === null ? "" : `[signed-by=${signedBy}] `;
  return `deb ${options}${url} ${words.join(" ")}`;
}

/** One address and one suite of apt's sources; only those of built packages. */
interface AptSource {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  /** A file, or the key itself; null: apt's own keys. */
  readonly signedBy: string | null;
}

/** The one-line form: `deb [signed-by=FILE] URI SUITE COMPONENT…`. */
function parseSourcesList(text: string): AptSource[] {
  return text.split(/\r?\n/).flatMap((line) => {
    const [, options = "", rest = ""] = /^\s*deb\s+(?:\[([^\]]*)\]\s+)?([^#]*)/.exec(line) ?? [];
    const [uri, suite, ...components] = words(rest);
    if (uri === undefined || suite === undefined) return [];
    const signedBy = /(?:^|\s)signed-by=(\S+)/i.exec(options)?.[1] ?? null;
    return [{ uri, suite, components, signedBy }];
  });
}

/** The form of `.sources` files: paragraphs of `Key: value`, whose values may continue in indented lines. */
function parseDeb822(text: string): AptSource[] {
  const lines = text.split(/\r?\n/).filter((line) => !line.startsWith("#"));
  const paragraphs = lines.join("\n").split(/\n[ \t]*\n+/);
  return paragraphs.flatMap((paragraph) => {
    const fields = fieldsOf(paragraph);
    const of = (key: string) => words(fields.get(key) ?? "");
    if (!of("types").includes("deb") || /^(no|false|0)$/i.test(fields.get("enabled")?.trim() ?? "")) return [];
    const signedBy = fields.get("signed-by")?.trim() ?? null;
    const components = of("components");
    return of("uris").flatMap((uri) => of("suites").map((suite) => ({ uri, suite, components, signedBy })));
  });
}

function fieldsOf(paragraph: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  let key = "";
  for (const line of paragraph.split("\n")) {
    const [, name, value = ""] = /^([A-Za-z][\w-]*):(.*)$/.exec(line) ?? [];
    if (name !== undefined) {
      key = name.toLowerCase();
      fields.set(key, value);
    } else if (/^\s/.test(line)) fields.set(key, `${fields.get(key) ?? ""} ${line.trim()}`);
  }
  return fields;
}

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}
