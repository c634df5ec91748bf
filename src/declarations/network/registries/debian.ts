import { readdir } from "node:fs/promises";
import { join } from "node:path";
import {
  hasCredentials,
  insideUrl,
  parseRegistryUrl,
  pathsBelow,
  type Registries,
  type Registry,
  type RegistryMachine,
  settingsAt,
  systemPlace,
} from "./registry.ts";

/** Images have these in their own lists. */
const PUBLIC = [
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
export async function debianRegistries(machine: RegistryMachine): Promise<Registries> {
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
    ? [...new Set([...PUBLIC, ...found.map(({ url }) => url)])].map((url) => registryOf(url, ["image"]))
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
export interface AptSource {
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
