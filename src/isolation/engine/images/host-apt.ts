import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { hasCode } from "../../../platform/errno.ts";
import { SYSTEM_PATH } from "../../../secrets/read-secret.ts";

export interface CommandOptions {
  readonly onLine?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
  /** Added to the few variables that a command gets. Nothing is inherited. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface CommandEnd {
  readonly succeeded: boolean;
  /** How it ended, and the last lines that it printed. */
  readonly account: string;
}

const TAIL_LINES = 15;
/** Longer than debootstrap takes over a slow line. */
const TIMEOUT_MS = 20 * 60_000;

/** Runs one of the host's programs to its end. A missing program is a failure like any other. */
export function runHostCommand(command: readonly string[], options: CommandOptions = {}): Promise<CommandEnd> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: SYSTEM_PATH, HOME: "/", LC_ALL: "C.UTF-8", DEBIAN_FRONTEND: "noninteractive", ...options.env },
    killSignal: "SIGKILL",
    ...(options.signal && { signal: options.signal }),
  });
  // Not the `timeout` option of `spawn`: if there is no such program, its timer would keep this process alive.
  const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
  const tail: string[] = [];
  for (const input of [child.stdout, child.stderr]) {
    createInterface({ input }).on("line", (line) => {
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      options.onLine?.(line);
    });
  }
  return new Promise((resolve, reject) => {
    const end = (how: string) =>
      resolve({ succeeded: how === "status 0", account: [`${program}: ${how}`, ...tail].join("\n") });
    child.once("error", (error: unknown) => {
      clearTimeout(timer);
      if (hasCode(error, "ENOENT")) end("no such program");
      else reject(error);
    });
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      end(code === null ? `killed by ${signal}` : `status ${code}`);
    });
  });
}

/**
 * The same command in its own mount and process namespaces, so that everything it mounts and starts ends with it, even
 * if it is killed. Needs root.
 */
export function contained(command: readonly string[]): string[] {
  return ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", ...command];
}

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
