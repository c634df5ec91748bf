import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type Docker from "dockerode";
import { ImageBuildError, type OnImageProgress } from "../../port/images.ts";
import { configureRoot } from "./bootstrap-root.ts";
import { readMessages } from "./engine-messages.ts";
import { type HostApt, readHostApt } from "./host-apt.ts";
import { contained, runHostCommand, SYSTEM_PATH } from "./host-command.ts";

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
