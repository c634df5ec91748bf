import { runHostCommand } from "./host-command.ts";

const NAMES = ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy"] as const;

/** The proxies that fetching packages needs here: from the environment, else from the host's own apt. */
export async function findProxies(env: Readonly<Record<string, string | undefined>>): Promise<Record<string, string>> {
  const given = NAMES.flatMap((name) => {
    const value = env[name] || env[name.toUpperCase()];
    return value ? [[name, value] as const] : [];
  });
  return given.length > 0 ? Object.fromEntries(given) : aptProxies();
}

async function aptProxies(): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  await runHostCommand(["apt-config", "dump", "--no-empty"], {
    onLine: (line) => {
      const [, scheme, url] = /^Acquire::(https?)::Proxy "(.+)";$/.exec(line) ?? [];
      if (scheme && url && url !== "DIRECT") found[`${scheme}_proxy`] = url;
    },
  });
  return found;
}
