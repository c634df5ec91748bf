import { configPlace, type Machine, namedPlace, settingsAt, systemPlace } from "./machine.ts";
import { insideUrl, parseRegistryUrl, pathsBelow, type Registries, type Registry } from "./registry.ts";

const PUBLIC_PROXY = "https://proxy.golang.org";
const PUBLIC_SUMDB = "sum.golang.org";

const MAX_PROXIES = 10;

/** The proxies and the checksum database of Go: the variables, then what `go env -w` wrote, then what Go came with. */
export async function goRegistries(machine: Machine): Promise<Registries> {
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
