import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { parse, TomlError, type TomlTableWithoutBigInt, type TomlValueWithoutBigInt } from "smol-toml";
import { codeOf } from "../../../platform/errno.ts";
import { type PackageKind, parseTarget } from "../../../sandbox/network/rule.ts";
import type { Env } from "../../../secrets/read-secret.ts";

/** Where package tools of this machine have their settings. */
export interface RegistryMachine {
  /** Corral's own environment. The settings of its user are below `HOME`. */
  readonly env: Env;
  /** Where the settings of the whole system are: `/`. */
  readonly root: string;
}

/** Far more than any settings file has. */
const MAX_BYTES = 1024 * 1024;

/** The text of a settings file; null if there is none, or Corral may not read it, as the tool itself could not. */
export async function settingsAt(path: string | null): Promise<string | null> {
  if (path === null) return null;
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await file.stat();
    return found.isFile() && found.size <= MAX_BYTES ? await file.readFile("utf8") : null;
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "EACCES", "ELOOP"].includes(codeOf(error) ?? "")) return null;
    throw error;
  }
}

/** A place of the whole system. */
export function systemPlace({ root }: RegistryMachine, path: string): string {
  return join(root, path);
}

/** A place of the user; null without a home. */
export function userPlace({ env }: RegistryMachine, path: string): string | null {
  return env.HOME?.startsWith("/") ? join(env.HOME, path) : null;
}

/** A place among the user's settings, as most tools understand the base directory specification. */
export function configPlace(machine: RegistryMachine, path: string): string | null {
  const { XDG_CONFIG_HOME: base } = machine.env;
  return base?.startsWith("/") ? join(base, path) : userPlace(machine, join(".config", path));
}

/** A place that a variable names; null if it does not, or not by an absolute path, which would depend on a directory. */
export function namedPlace(path: string | undefined): string | null {
  return path?.startsWith("/") ? path : null;
}

/** A host from which the tools of a kind fetch packages. */
export interface Registry {
  readonly kind: PackageKind;
  /** `https://host/path/`: lower case, with a final slash, without user, query and usual port. */
  readonly url: string;
  /** The only paths that the tools need, as in a rule. Absent: every path. */
  readonly paths?: readonly string[];
  /** As in `PackageSource`. */
  readonly use: readonly string[];
}

/** What the settings of this machine say. */
export interface Registries {
  readonly registries: readonly Registry[];
  /** What the settings name and Corral does not use, each as a sentence. */
  readonly notes: readonly string[];
}

type RegistryUrl =
  | { readonly ok: true; readonly url: string }
  /** `reason` follows the name of the setting. */
  | { readonly ok: false; readonly reason: string };

/** The canonical form of an address in a settings file. The reason does not repeat it: it may contain a password. */
export function parseRegistryUrl(raw: string): RegistryUrl {
  const parsed = raw.length <= 2000 && URL.canParse(raw) ? new URL(raw) : null;
  if (parsed === null) return { ok: false, reason: "is not an address" };
  const { protocol, host, hostname, pathname } = parsed;
  if (protocol !== "https:" && protocol !== "http:")
    return { ok: false, reason: `is a ${protocol.slice(0, 20)} address, which is not on the network` };
  const path = `${pathname.replace(/\/+$/, "")}/`;
  // A path that could mean two things, or end the line of a settings file.
  if (!/^[A-Za-z0-9._~!$&()+,;=@/-]+$/.test(path) || path.includes("//") || /\/\.{1,2}\//.test(path))
    return { ok: false, reason: "has a path that Corral does not take" };
  if (!parseTarget(`${hostname}:443`).ok) return { ok: false, reason: "has a host that Corral does not take" };
  return { ok: true, url: `${protocol}//${host}${path}` };
}

/** True if the address names a user or a password, which Corral does not pass on. */
export function hasCredentials(raw: string): boolean {
  if (!URL.canParse(raw)) return false;
  const { username, password } = new URL(raw);
  return username !== "" || password !== "";
}

/** `host:port` of a registry. */
export function targetOf(url: string): string {
  const { protocol, hostname, port } = new URL(url);
  return `${hostname}:${port === "" ? (protocol === "https:" ? 443 : 80) : port}`;
}

/** The same place as the cell reaches it: in plain HTTP. */
export function insideUrl(url: string): string {
  return url.replace(/^https:/, "http:");
}

/** `/path/**` for a registry below a path; absent for one that has the whole host. */
export function pathsBelow(url: string): { readonly paths?: readonly string[] } {
  const { pathname } = new URL(url);
  return pathname === "/" ? {} : { paths: [`${pathname}**`] };
}

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

export const PUBLIC_PIP_INDEX = "https://pypi.org/simple/";
/** The index of `pypi.org` names its files on this host. */
const PUBLIC_FILES: Registry = {
  kind: "pypi",
  url: "https://files.pythonhosted.org/",
  paths: ["/packages/**"],
  use: [],
};

const MAX_INDEXES = 20;

/** The indexes of pip: the variables, then the user's `pip.conf`, then the system's. An index in a directory is not used. */
export async function pipRegistries(machine: RegistryMachine): Promise<Registries> {
  const { env } = machine;
  const files = [
    systemPlace(machine, "etc/xdg/pip/pip.conf"),
    systemPlace(machine, "etc/pip.conf"),
    userPlace(machine, ".pip/pip.conf"),
    configPlace(machine, "pip/pip.conf"),
    namedPlace(env.PIP_CONFIG_FILE),
  ];
  const settings = new Map<string, string>();
  for (const place of env.PIP_CONFIG_FILE === "/dev/null" ? [] : files) {
    for (const [key, value] of parsePipConf((await settingsAt(place)) ?? "")) settings.set(key, value);
  }
  const setting = (key: string) => fromEnvironment(env, key) ?? settings.get(key);
  const indexes = [setting("index-url") ?? PUBLIC_PIP_INDEX, ...(setting("extra-index-url") ?? "").split(/\s+/)];
  const notes: string[] = [];
  const registries: Registry[] = [];
  for (const raw of indexes.filter((text) => text !== "").slice(0, MAX_INDEXES)) {
    const parsed = parseRegistryUrl(raw);
    if (!parsed.ok) notes.push(`An index of pip ${parsed.reason}; it is not used.`);
    if (hasCredentials(raw)) notes.push("An index of pip names a user, who is left out.");
    if (!parsed.ok || registries.some(({ url }) => url === parsed.url)) continue;
    const { url } = parsed;
    registries.push({ kind: "pypi", url, ...pathsBelow(rootOf(url)), use: [insideUrl(url)] });
    if (url === PUBLIC_PIP_INDEX) registries.push(PUBLIC_FILES);
  }
  return { registries, notes };
}

/** For an index: where its files are. Nothing for a host that only has files. */
export function pipFilesOf({ url, use }: Registry) {
  if (use.length === 0) return [];
  const files = url === PUBLIC_PIP_INDEX ? PUBLIC_FILES.url : url;
  const root = new URL(rootOf(url)).pathname;
  return [{ registry: url, files: { registry: files, path: url === PUBLIC_PIP_INDEX ? "/packages/**" : `${root}**` } }];
}

/** Servers have the files of an index beside it: `/root/simple/` and `/root/packages/`. */
function rootOf(url: string): string {
  return url === PUBLIC_PIP_INDEX ? url : url.replace(/\/\+?simple\/$/, "/");
}

function fromEnvironment(env: Env, key: string): string | undefined {
  const value = env[`PIP_${key.toUpperCase().replaceAll("-", "_")}`];
  return value === "" ? undefined : value;
}

/** The settings of a `pip.conf` that count for an installation: of `[global]`, and those of `[install]`, which go first. */
function parsePipConf(text: string): ReadonlyMap<string, string> {
  const sections = { global: new Map<string, string>(), install: new Map<string, string>() };
  let section: Map<string, string> | null = null;
  let key: string | null = null;
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*([#;].*)?$/.test(line)) continue;
    const header = /^\[([^\]]*)\]\s*$/.exec(line);
    const setting = /^([^\s=:][^=:]*?)\s*[=:]\s*(.*?)\s*$/.exec(line);
    if (header !== null) {
      section = header[1] === "global" || header[1] === "install" ? sections[header[1]] : null;
      key = null;
    } else if (/^\s/.test(line) && key !== null) {
      // A value may continue in further lines.
      section?.set(key, `${section.get(key) ?? ""} ${line.trim()}`.trim());
    } else if (setting !== null) {
      key = (setting[1] ?? "").toLowerCase().replaceAll("_", "-");
      section?.set(key, setting[2] ?? "");
    }
  }
  return new Map([...sections.global, ...sections.install]);
}

export type TomlTable = TomlTableWithoutBigInt;

type TomlParse =
  | { readonly ok: true; readonly table: TomlTable }
  /** `line` counts from 1. */
  | { readonly ok: false; readonly line: number };

/** Of lists and of tables in braces. Lock files nest them less deeply. */
const MAX_DEPTH = 16;

/** Reads a text that the caller has bounded. Never throws. */
export function parseToml(text: string): TomlParse {
  try {
    return { ok: true, table: parse(text, { maxDepth: MAX_DEPTH }) };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    return { ok: false, line: error.line };
  }
}

/** The table that these keys lead to. */
function tableAt(table: TomlTable, ...keys: string[]): TomlTable | undefined {
  let found: TomlTable | undefined = table;
  for (const key of keys) {
    // A key may be one that every object has, such as `constructor`.
    const next: TomlValueWithoutBigInt | undefined = found && Object.hasOwn(found, key) ? found[key] : undefined;
    found = isTable(next) ? next : undefined;
  }
  return found;
}

/** A date is an object too. */
export function isTable(value: TomlValueWithoutBigInt | undefined): value is TomlTable {
  return typeof value === "object" && !Array.isArray(value) && !(value instanceof Date);
}
