import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import type Docker from "dockerode";
import { extract, type Pack, pack } from "tar-stream";
import { z } from "zod";
import { SYSTEM_PATH } from "../../../secrets/read-secret.ts";
import { holdFile } from "../../../state/file-lock.ts";
import { lockOwner, parseOwner } from "../../../state/owner.ts";
import { makeClosedDir, statePaths } from "../../../state/state-dir.ts";
import {
  BASE_NAME,
  type BuiltImage,
  type ContextFile,
  IMAGE_PREFIX,
  ImageBuildError,
  type ImageBuildRequest,
  type OnImageProgress,
  withoutColors,
} from "../../port/images.ts";
import { engineTrouble } from "../answers/asked.ts";
import { type BootstrapRequest, findProxies, readMessages, runHostCommand } from "./bootstrap.ts";
import {
  BASE_LABEL,
  type CatalogImage,
  catalogImages,
  FINGERPRINT_LABEL,
  fingerprint,
  type ImagesRequest,
  inspectImage,
  isCurrent,
  packedFiles,
} from "./catalog.ts";
import { ensureDebianBase } from "./debian-base.ts";

/**
 * In an image's folder: packages of npm that the image contains. A build knows no registry, proxy or key of this machine; its npm does.
 * A Dockerfile finds their files in `npm-packages.tar`.
 */
const MANIFEST = "npm-packages.json";
const ARCHIVE = "npm-packages.tar";
const WORK_PREFIX = "npm-packages.";

const Release = z.strictObject({
  /** With the exact version. */
  package: z.string().regex(/^[a-z0-9-]+@\d+\.\d+\.\d+$/),
  /** SHA-512 of the package's archive, as in a lock file. */
  integrity: z.string().regex(/^sha512-[A-Za-z0-9+/]+=*$/),
});
const Manifest = z.array(
  z.strictObject({
    /** By the architecture of the Engine; `any`: the same for all. */
    release: z.partialRecord(z.enum(["amd64", "arm64", "any"]), Release),
    /** Where its files go in the archive. Empty: at the top. */
    into: z.string().regex(/^([a-z_]+(\/[a-z_]+)*)?$/),
    /** Only these files of the package; absent: all. */
    only: z.array(z.string()).optional(),
  }),
);

const MAX_BYTES = 200 * 1024 * 1024;

export interface NpmPackagesRequest {
  readonly source: CatalogImage;
  /** The Engine's, e.g. `amd64`. */
  readonly architecture: string;
  /** The caller holds the lock of its images. */
  readonly stateDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onProgress: OnImageProgress;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The files of the packages that the image's folder names, if it does. npm of this machine fetches them with its own settings; a package
 * with another digest is not used.
 *
 * @throws ImageBuildError
 */
async function npmPackages(request: NpmPackagesRequest): Promise<ContextFile[]> {
  const { source, architecture, stateDir, onProgress } = request;
  const manifest = source.context.files.find(({ name }) => name === MANIFEST);
  if (manifest === undefined) return [];
  for (const name of await readdir(stateDir))
    if (name.startsWith(WORK_PREFIX)) await rm(join(stateDir, name), { recursive: true, force: true });
  const work = await mkdtemp(join(stateDir, WORK_PREFIX));
  try {
    const archive = pack();
    const packed = Array.fromAsync(archive as AsyncIterable<Buffer>);
    for (const { release, into, only } of Manifest.parse(JSON.parse(manifest.content.toString("utf8")))) {
      const { [architecture as keyof typeof release]: found = release.any } = release;
      if (found === undefined)
        throw new ImageBuildError(source.tag, `${MANIFEST} has no package for the architecture ${architecture}`);
      onProgress({ image: source.tag, text: `fetching ${found.package} with npm` });
      const dir = await mkdtemp(join(work, "package."));
      await addFiles(archive, await fetched(request, dir, found), { into, only });
    }
    archive.finalize();
    return [{ name: ARCHIVE, content: Buffer.concat(await packed) }];
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function fetched(
  { source, env, signal }: NpmPackagesRequest,
  dir: string,
  { package: name, integrity }: z.infer<typeof Release>,
): Promise<Buffer> {
  const failed = (why: string) => new ImageBuildError(source.tag, `the package ${name} of npm ${why}`);
  const given = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const target = join(dir, "packed");
  await mkdir(target);
  // With a folder of its own as prefix, npm reads no settings of a project.
  const command = ["npm", "pack", name, "--ignore-scripts", "--silent", "--prefix", dir, "--pack-destination", target];
  const end = await runHostCommand(command, { env: { PATH: SYSTEM_PATH, ...Object.fromEntries(given) }, signal });
  signal?.throwIfAborted();
  if (!end.succeeded)
    throw failed(`cannot be fetched. Corral asks npm of this machine, with its settings.\n${end.account}`);
  const [file = ""] = await readdir(target);
  if ((await stat(join(target, file))).size > MAX_BYTES) throw failed(`has more than ${MAX_BYTES} bytes`);
  const content = await readFile(join(target, file));
  if (`sha512-${createHash("sha512").update(content).digest("base64")}` !== integrity)
    throw failed(`has not the digest of ${MANIFEST}. It was not used`);
  return content;
}

/** npm packs each file below `package/`. */
async function addFiles(
  archive: Pack,
  tgz: Buffer,
  { into, only }: { readonly into: string; readonly only: readonly string[] | undefined },
): Promise<void> {
  const files = extract();
  const reading = pipeline(Readable.from([tgz]), createGunzip(), files);
  for await (const entry of files) {
    const name = entry.header.name.replace(/^package\//, "");
    const isWanted = entry.header.type === "file" && (only?.includes(name) ?? true);
    if (isWanted && !name.split("/").includes("..")) {
      const mode = ((entry.header.mode ?? 0) & 0o111) === 0 ? 0o644 : 0o755;
      const content = Buffer.concat(await Array.fromAsync(entry as AsyncIterable<Buffer>));
      archive.entry({ name: join(into, name), mode, uid: 0, gid: 0, mtime: new Date(0) }, content);
    } else entry.resume();
  }
  await reading;
}

/** As `EngineImages.build` says, on a Debian that is pulled or made. */
export async function buildEngineImages(request: ImageBuildRequest & ImagesRequest): Promise<BuiltImage[]> {
  const { docker, imagesDir, stateDir, names, env = {}, onProgress, signal, prefix = IMAGE_PREFIX } = request;
  const sources = await catalogImages(imagesDir, prefix, names);
  await makeClosedDir(stateDir);
  await using _lock = await acquireLock(statePaths(stateDir).imagesLock, {
    signal,
    onWait: (pid) =>
      onProgress({ image: `${prefix}/${BASE_NAME}`, text: `waiting for another build (process ${pid})` }),
  });
  const proxies = await findProxies(env);
  const network = await networkFor(docker, proxies);
  const debian = await ensureDebianBase({ docker, stateDir, onProgress, signal, proxies });
  const [baseSource, ...others] = sources;
  if (baseSource === undefined) return [];
  const superseded: string[] = [];
  const failed = new AbortController();
  const how = { docker, stateDir, network, proxies, env, onProgress, signal: eitherOf(signal, failed.signal) };
  const build = async (source: CatalogImage, baseId: string): Promise<BuiltImage> => {
    const before = await inspectImage(docker, source.tag);
    const image = await bringUpToDate(source, baseId, how, before);
    if (before && before.Id !== image.id && before.Config.Labels?.[FINGERPRINT_LABEL]) superseded.unshift(before.Id);
    return image;
  };
  const base = await build(baseSource, debian.id);
  // All others stand on the base. They are built at the same time, since each waits for the network for much of its own.
  const built = await allOrNone(
    others.map((source) => build(source, base.id)),
    failed,
  );
  // An image that a running cell still uses stays, without a name.
  for (const id of superseded)
    await docker
      .getImage(id)
      .remove()
      .catch(() => {});
  return [base, ...built];
}

/** Rejects with the first failure, once all others have ended, which `failed` tells them to. */
async function allOrNone<T>(works: readonly Promise<T>[], failed: AbortController): Promise<T[]> {
  let reason: unknown;
  const ended = works.map((work) =>
    work.catch((error: unknown) => {
      if (!failed.signal.aborted) reason = error;
      failed.abort(error);
    }),
  );
  await Promise.all(ended);
  if (failed.signal.aborted) throw reason;
  return await Promise.all(works);
}

function eitherOf(signal: AbortSignal | undefined, other: AbortSignal): AbortSignal {
  return signal === undefined ? other : AbortSignal.any([signal, other]);
}

type How = Omit<BuildRequest, "tag" | "shownAs" | "files" | "arguments" | "labels"> &
  Pick<NpmPackagesRequest, "stateDir" | "env">;

async function bringUpToDate(
  source: CatalogImage,
  baseId: string,
  how: How,
  before: Docker.ImageInspectInfo | null,
): Promise<BuiltImage> {
  const { docker, onProgress } = how;
  const started = performance.now();
  if (before && isCurrent(before, source, baseId)) return describe(source, before, false, started);
  onProgress({ image: source.tag, text: before ? "stale, building it again" : "building" });
  const { Arch: architecture } = await docker.version();
  await buildImage({
    ...how,
    tag: source.tag,
    shownAs: source.tag,
    files: [...source.context.files, ...(await npmPackages({ ...how, source, architecture }))],
    arguments: { BASE: baseId },
    labels: { [FINGERPRINT_LABEL]: fingerprint(source, baseId), [BASE_LABEL]: baseId },
  });
  const after = await inspectImage(docker, source.tag);
  if (!after || !isCurrent(after, source, baseId))
    throw new ImageBuildError(source.tag, "the Engine ended the build without an image");
  const image = describe(source, after, true, started);
  onProgress({
    image: source.tag,
    text: `built, ${Math.round(image.sizeBytes / 1e6)} MB, ${(image.durationMs / 1000).toFixed(1)} s`,
  });
  return image;
}

function describe(
  { name, tag }: CatalogImage,
  image: Docker.ImageInspectInfo,
  built: boolean,
  started: number,
): BuiltImage {
  return { name, tag, id: image.Id, sizeBytes: image.Size, built, durationMs: Math.round(performance.now() - started) };
}

/** A build fetches packages: through the host's network if the Engine has no bridge, or if the proxy listens on the host itself. */
export async function networkFor(
  docker: Docker,
  proxies: Readonly<Record<string, string>>,
): Promise<"host" | undefined> {
  const networks = await docker.listNetworks({ filters: { driver: ["bridge"] } });
  const localProxy = Object.values(proxies).some((proxy) => /\/\/(localhost|127\.|\[::1\])/.test(proxy));
  return networks.length === 0 || localProxy ? "host" : undefined;
}

const POLL_MS = 200;
/** Longer than building every image takes on a slow machine. */
const MAX_WAIT_MS = 30 * 60_000;

export interface LockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once, with its pid, when another process is building. */
  readonly onWait?: (pid: number) => void;
}

/** Waits until no other process holds `file`, and holds it until it is disposed. A dead process's lock is taken over. */
export async function acquireLock(file: string, { signal, onWait }: LockOptions = {}): Promise<AsyncDisposable> {
  return await holdFile(file, lockOwner(), {
    waitMs: MAX_WAIT_MS,
    longestPauseMs: POLL_MS,
    signal,
    onWait: (name) => onWait?.(parseOwner(name)?.pid ?? 0),
  });
}

interface BuildRequest extends Omit<BootstrapRequest, "stateDir"> {
  readonly tag: string;
  /** What people know it by. */
  readonly shownAs: string;
  readonly files: readonly ContextFile[];
  readonly arguments: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  /** `host` if the Engine has no network of its own; else its default. */
  readonly network?: "host" | undefined;
}

const TAIL_LINES = 20;

/** Builds one image with the Engine's own builder. */
export async function buildImage(request: BuildRequest): Promise<void> {
  const { docker, tag, shownAs, files, labels, network, proxies, onProgress, signal } = request;
  const building = docker.buildImage(Readable.from([await packedFiles(files)]), {
    t: tag,
    // The builder knows the usual proxy variables and does not keep them in the image.
    buildargs: { ...proxies, ...request.arguments },
    labels,
    rm: true,
    forcerm: true,
    ...(network && { networkmode: network }),
    ...(signal && { abortSignal: signal }),
  });
  const answer = await building.catch((error: unknown) => {
    signal?.throwIfAborted();
    throw engineTrouble(error);
  });
  let step: string | undefined;
  const tail: string[] = [];
  for await (const message of readMessages(answer)) {
    if (message.error) throw new ImageBuildError(shownAs, failure(message.error, step, tail), { cause: message.error });
    const lines = withoutColors(message.stream ?? "").split(/[\r\n]+/);
    for (const line of lines.filter((text) => text.trim() !== "")) {
      step = /^Step (\d+\/\d+ : .*)/.exec(line)?.[1]?.replace(" : ", " ") ?? step;
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      if (!step?.includes(" LABEL dev.corral.")) onProgress({ image: shownAs, ...(step && { step }), text: line });
    }
  }
}

function failure(error: string, step: string | undefined, tail: readonly string[]): string {
  // Its number counts what Corral adds too.
  const at = step === undefined ? "before its first step" : `at \`${step.replace(/^\S+ /, "")}\``;
  const title = `the build failed ${at}`;
  return [title, ...tail.map((line) => `  ${line}`), error.trim()].join("\n");
}
