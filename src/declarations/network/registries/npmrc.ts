import type { Env } from "../../../secrets/read-secret.ts";

/** The settings of a `.npmrc`. Lines that are none are ignored, as npm does. */
export function parseNpmrc(text: string, env: Env): ReadonlyMap<string, string> {
  const settings = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const [, key, value] = /^\s*([^\s=;#[\]][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined) settings.set(key, withVariables(withoutQuotes(value), env));
  }
  return settings;
}

/** A setting from the environment: `npm_config_NAME`, in any case. */
export function configValue(env: Env, name: string): string | undefined {
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
