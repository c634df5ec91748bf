import type Docker from "dockerode";
import { holdFile } from "../../../state/file-lock.ts";
import { lockOwner, parseOwner } from "../../../state/owner.ts";
import { makeClosedDir } from "../../../state/state-dir.ts";
import { statePaths } from "../../../state/state-paths.ts";
import {
  BASE_NAME,
  type BuiltImage,
  IMAGE_PREFIX,
  ImageBuildError,
  type ImageBuildRequest,
} from "../../port/images.ts";
import { type BuildRequest, buildImage } from "./build-image.ts";
import {
  BASE_LABEL,
  FINGERPRINT_LABEL,
  fingerprint,
  type ImageSource,
  type ImagesRequest,
  isCurrent,
  listImages,
} from "./catalog.ts";
import { ensureDebianBase } from "./debian-base.ts";
import { findProxies } from "./host-apt.ts";
import { inspectImage } from "./inspect.ts";
import { type NpmPackagesRequest, npmPackages } from "./npm-packages.ts";

/** As `EngineImages.build` says, on a Debian that is pulled or made. */
export async function buildImages(request: ImageBuildRequest & ImagesRequest): Promise<BuiltImage[]> {
  const { docker, imagesDir, stateDir, names, env = {}, onProgress, signal, prefix = IMAGE_PREFIX } = request;
  const sources = await listImages(imagesDir, prefix, names);
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
  const build = async (source: ImageSource, baseId: string): Promise<BuiltImage> => {
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
  source: ImageSource,
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
  { name, tag }: ImageSource,
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
