import type { Env } from "../../../secrets/read-secret.ts";
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

const PUBLIC = "https://pypi.org/simple/";
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
  const indexes = [setting("index-url") ?? PUBLIC, ...(setting("extra-index-url") ?? "").split(/\s+/)];
  const notes: string[] = [];
  const registries: Registry[] = [];
  for (const raw of indexes.filter((text) => text !== "").slice(0, MAX_INDEXES)) {
    const parsed = parseRegistryUrl(raw);
    if (!parsed.ok) notes.push(`An index of pip ${parsed.reason}; it is not used.`);
    if (hasCredentials(raw)) notes.push("An index of pip names a user, who is left out.");
    if (!parsed.ok || registries.some(({ url }) => url === parsed.url)) continue;
    const { url } = parsed;
    registries.push({ kind: "pypi", url, ...pathsBelow(rootOf(url)), use: [insideUrl(url)] });
    if (url === PUBLIC) registries.push(PUBLIC_FILES);
  }
  return { registries, notes };
}

/** For an index: where its files are. Nothing for a host that only has files. */
export function pipFilesOf({ url, use }: Registry) {
  if (use.length === 0) return [];
  const files = url === PUBLIC ? PUBLIC_FILES.url : url;
  const root = new URL(rootOf(url)).pathname;
  return [{ registry: url, files: { registry: files, path: url === PUBLIC ? "/packages/**" : `${root}**` } }];
}

/** Servers have the files of an index beside it: `/root/simple/` and `/root/packages/`. */
function rootOf(url: string): string {
  return url === PUBLIC ? url : url.replace(/\/\+?simple\/$/, "/");
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
