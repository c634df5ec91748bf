import { type Machine, namedPlace, settingsAt, systemPlace, userPlace } from "./machine.ts";
import { configValue, parseNpmrc } from "./npmrc.ts";
import { hasCredentials, insideUrl, parseRegistryUrl, pathsBelow, type Registries, type Registry } from "./registry.ts";

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
export async function npmRegistries(machine: Machine): Promise<Registries> {
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
