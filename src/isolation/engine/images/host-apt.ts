import { readFile } from "node:fs/promises";
import { runHostCommand } from "./host-command.ts";

/** How this host's own apt reaches Debian's packages, translated to the suite that the images use. */
export interface HostApt {
  /** Where debootstrap gets its packages; null: its own default. */
  readonly mirror: string | null;
  /** Lines of a `sources.list` for the image; empty if only the mirror's main suite is known. */
  readonly sources: readonly string[];
  /** Lines of `apt.conf` that this mirror needs here, e.g. not to check its dates. */
  readonly settings: readonly string[];
}

const NOTHING: HostApt = { mirror: null, sources: [], settings: [] };
/** apt fills this in for each index that it knows. */
const TARGET = "$(REPO_URI) $(RELEASE) $(COMPONENT)";

/**
 * Reads the host's apt configuration through apt itself. Only a Debian host has a mirror of Debian.
 *
 * A source with a password is left out: every cell could read it.
 */
export async function readHostApt(suite: string): Promise<HostApt> {
  const osRelease = await readFile("/etc/os-release", "utf8").catch(() => "");
  const hostSuite = /^VERSION_CODENAME="?([a-z]+)"?$/m.exec(osRelease)?.[1];
  if (!/^ID="?debian"?$/m.test(osRelease) || !hostSuite) return NOTHING;
  const targets = await lines(
    "apt-get",
    "indextargets",
    "--no-release-info",
    "--format",
    TARGET,
    "Created-By: Packages",
  );
  const archives = targets.flatMap((line) => parseTarget(line, hostSuite));
  const dumped = await lines("apt-config", "dump", "--no-empty");
  return {
    mirror: archives.find((archive) => archive.pocket === "")?.uri ?? null,
    sources: [...new Set(archives.map(({ uri, pocket }) => `deb ${uri} ${suite}${pocket} main`))],
    settings: dumped.filter((line) => /^Acquire::(Check-Valid-Until|Check-Date) /.test(line)),
  };
}

/** `pocket` is what follows the suite's name: nothing, `-updates` or `-security`. */
function parseTarget(line: string, hostSuite: string): { uri: string; pocket: string }[] {
  const [uri = "", release = "", component] = line.split(" ");
  const pocket = release.startsWith(hostSuite) ? release.slice(hostSuite.length) : null;
  if (component !== "main" || pocket === null || !/^(-updates|-security)?$/.test(pocket)) return [];
  if (!/^https?:/.test(uri) || !URL.canParse(uri) || new URL(uri).username) return [];
  return [{ uri, pocket }];
}

/** Empty on a host without apt, or with an apt that cannot read its settings. */
async function lines(...command: string[]): Promise<string[]> {
  const printed: string[] = [];
  const end = await runHostCommand(command, { onLine: (line) => printed.push(line) });
  return end.succeeded ? printed : [];
}

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
