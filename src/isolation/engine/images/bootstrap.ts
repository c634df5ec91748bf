import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import { hasCode } from "../../../platform/errno.ts";
import { SYSTEM_PATH } from "../../../secrets/read-secret.ts";
import { ImageBuildError, type OnImageProgress } from "../../port/images.ts";

/** Documentation is left out of every package; licences stay. */
const DPKG_EXCLUDES = `path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
`;

/** Installing a package starts no service. */
const POLICY_RC = "#!/bin/sh\nexit 101\n";

const CLEAN = `
rm -rf /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /var/log/*.log /var/log/apt \
  /var/cache/debconf/*-old /usr/share/man/* /usr/share/info/* /usr/share/locale/* /etc/hostname /etc/resolv.conf
find /usr/share/doc -mindepth 2 ! -type d ! -name copyright -delete
find /usr/share/doc -mindepth 1 -type d -empty -delete
: > /etc/machine-id
`;

/**
 * Prepares a minimal Debian for an image: packages from the host's own sources, security updates if the host has them,
 * and no files that programs do not need.
 */
async function configureRoot(
  root: string,
  apt: HostApt,
  run: (command: readonly string[]) => Promise<void>,
): Promise<void> {
  const inRoot = (...command: string[]) => run(contained(["chroot", root, ...command]));
  await writeFile(join(root, "etc/dpkg/dpkg.cfg.d/corral"), DPKG_EXCLUDES);
  await writeFile(join(root, "usr/sbin/policy-rc.d"), POLICY_RC, { mode: 0o755 });
  await writeFile(
    join(root, "etc/apt/apt.conf.d/90corral"),
    [...apt.settings, 'Acquire::Languages "none";', ""].join("\n"),
  );
  if (apt.sources.length > 0) {
    await writeFile(join(root, "etc/apt/sources.list"), `${apt.sources.join("\n")}\n`);
    await inRoot("apt-get", "update", "-o", "APT::Update::Error-Mode=any").catch(() => keepWhatAnswers(root, apt));
    await inRoot("apt-get", "update");
    await inRoot("apt-get", "dist-upgrade", "-y", "--no-install-recommends");
  }
  await inRoot("sh", "-c", CLEAN);
}

/** Keeps only the mirror: a source that does not answer would fail every later build. */
async function keepWhatAnswers(root: string, apt: HostApt): Promise<void> {
  const main = apt.sources.find(
    (source) => source.startsWith(`deb ${apt.mirror} `) && !/-(updates|security) main$/.test(source),
  );
  await writeFile(join(root, "etc/apt/sources.list"), main ? `${main}\n` : "");
}

export const BOOTSTRAP_TAG = "corral/debian:bookworm";
const SUITE = "bookworm";
const WORK_PREFIX = "bootstrap-";

export interface BootstrapRequest {
  readonly docker: Docker;
  readonly stateDir: string;
  readonly onProgress: OnImageProgress;
  readonly signal?: AbortSignal | undefined;
  readonly proxies: Readonly<Record<string, string>>;
}

/**
 * Makes {@link BOOTSTRAP_TAG} from Debian's packages if no registry answers (docs/architecture.md,
 * fact: images-without-a-registry). Needs root on a Debian or Ubuntu host, because the packages' own scripts run under
 * chroot. The caller holds the state folder's lock.
 */
export async function bootstrapDebian(request: BootstrapRequest): Promise<void> {
  const { stateDir, onProgress, signal, proxies } = request;
  if (process.getuid?.() !== 0) throw new ImageBuildError(BOOTSTRAP_TAG, "making it from Debian's packages needs root");
  const run = async (command: readonly string[]) => {
    const end = await runHostCommand(command, {
      signal,
      env: proxies,
      onLine: (text) => onProgress({ image: BOOTSTRAP_TAG, step: "debootstrap", text }),
    });
    if (!end.succeeded) throw new ImageBuildError(BOOTSTRAP_TAG, end.account);
  };
  await removeLeftovers(stateDir);
  await installDebootstrap(run);
  const work = await mkdtemp(join(stateDir, WORK_PREFIX));
  try {
    const root = join(work, "root");
    await mkdir(root, { mode: 0o755 });
    const apt = await readHostApt(SUITE);
    const mirror = apt.mirror ? [apt.mirror] : [];
    await run(contained(["debootstrap", "--variant=minbase", ...certificates(apt), SUITE, root, ...mirror]));
    await configureRoot(root, apt, run);
    await importRoot(root, request);
    onProgress({ image: BOOTSTRAP_TAG, text: "made from Debian's packages" });
  } finally {
    await rm(work, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

/** A build that was killed leaves its folder behind. No live build can own one, because this process holds the lock. */
async function removeLeftovers(stateDir: string): Promise<void> {
  const left = (await readdir(stateDir)).filter((name) => name.startsWith(WORK_PREFIX));
  await Promise.all(left.map((name) => rm(join(stateDir, name), { recursive: true, force: true })));
}

async function installDebootstrap(run: (command: readonly string[]) => Promise<void>): Promise<void> {
  if ((await runHostCommand(["debootstrap", "--version"])).succeeded) return;
  if (!(await runHostCommand(["apt-get", "--version"])).succeeded) {
    throw new ImageBuildError(
      BOOTSTRAP_TAG,
      "making it from Debian's packages needs debootstrap, and there is no apt-get to install it",
    );
  }
  await run(["apt-get", "update"]);
  await run(["apt-get", "install", "-y", "--no-install-recommends", "debootstrap", "debian-archive-keyring"]);
}

function certificates(apt: HostApt): string[] {
  return apt.mirror?.startsWith("https:") ? ["--include=ca-certificates"] : [];
}

/** Streams a folder into the Engine as {@link BOOTSTRAP_TAG}, an image of one layer. */
async function importRoot(root: string, { docker, signal }: BootstrapRequest): Promise<void> {
  const [repo, tag] = BOOTSTRAP_TAG.split(":");
  const tar = spawn("tar", [...TAR_OPTIONS, "--directory", root, "--create", "."], {
    stdio: ["ignore", "pipe", "ignore"],
    env: { PATH: SYSTEM_PATH },
  });
  const ended = once(tar, "close");
  try {
    const changes = [`ENV PATH=${SYSTEM_PATH}`, 'CMD ["/bin/sh"]'];
    const options = { repo, tag, changes, ...(signal && { abortSignal: signal }) };
    const answer = await docker.importImage(tar.stdout, options);
    for await (const message of readMessages(answer)) {
      if (message.error) throw new ImageBuildError(BOOTSTRAP_TAG, `the Engine refused it: ${message.error}`);
    }
  } finally {
    if (tar.exitCode === null) tar.kill("SIGKILL");
  }
  const [status] = await ended;
  if (status !== 0) throw new ImageBuildError(BOOTSTRAP_TAG, `tar ended with status ${status}`);
}

/** What the kernel shows in these folders does not belong to the image. */
const TAR_OPTIONS = ["--numeric-owner", "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*"];

/** One message of the Engine while it pulls, builds or imports. */
const EngineMessage = z.object({
  stream: z.string().optional(),
  status: z.string().optional(),
  error: z.string().optional(),
});
type EngineMessage = z.infer<typeof EngineMessage>;

/** Reads the Engine's messages one by one. An unknown line is skipped: newer Engines send other kinds too. */
export async function* readMessages(stream: NodeJS.ReadableStream): AsyncGenerator<EngineMessage> {
  // A broken connection must end with its error; readline alone would treat it as the end.
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => {});
  stream.once("error", failed.reject);
  const lines = createInterface({ input: stream })[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await Promise.race([lines.next(), failed.promise]);
      if (next.done) return;
      const message = EngineMessage.safeParse(parseLine(next.value));
      if (message.success) yield message.data;
    }
  } finally {
    if (stream instanceof Readable) stream.destroy();
  }
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

interface CommandOptions {
  readonly onLine?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
  /** Added to the few variables that a command gets. Nothing is inherited. */
  readonly env?: Readonly<Record<string, string>>;
}

interface CommandEnd {
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
function contained(command: readonly string[]): string[] {
  return ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", ...command];
}

/** How this host's own apt reaches Debian's packages, translated to the suite that the images use. */
interface HostApt {
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
