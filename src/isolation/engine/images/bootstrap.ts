import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import { SYSTEM_PATH } from "../../../secrets/read-secret.ts";
import { ImageBuildError, type OnImageProgress } from "../../port/images.ts";
import { contained, type HostApt, readHostApt, runHostCommand } from "./host-apt.ts";

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
