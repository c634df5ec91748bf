import type Docker from "dockerode";
import { z } from "zod";
import { makeClosedDir, statePaths } from "../../../state/state-dir.ts";
import {
  type FoundImage,
  ImageBuildError,
  type MadeFrom,
  type MadeImage,
  type MakeImageRequest,
  madeTag,
} from "../../port/images.ts";
import { asked, isGone } from "../answers/asked.ts";
import { findProxies } from "./bootstrap.ts";
import { acquireLock, buildImage, networkFor } from "./build-images.ts";
import { inspectImage } from "./catalog.ts";
import { pullTag } from "./debian-base.ts";

/* Images that workers of a project have of their own. Their labels say what they were made of. */

const KIND = "dev.corral.made.kind";
const PROJECT = "dev.corral.made.project";
const NAME = "dev.corral.made.name";
const DIGEST = "dev.corral.made.digest";

interface Place {
  readonly docker: Docker;
  readonly stateDir: string;
}

/** As `EngineImages.make` says. */
export async function makeImage(request: MakeImageRequest, { docker, stateDir }: Place): Promise<FoundImage> {
  const { made, files, onProgress, signal, env = {} } = request;
  const shownAs = made.name;
  const before = await currentImage(docker, made);
  if (before !== null) return before;
  await makeClosedDir(stateDir);
  await using _lock = await acquireLock(statePaths(stateDir).imagesLock, {
    signal,
    onWait: (pid) => onProgress({ image: shownAs, text: `waiting for another build (process ${pid})` }),
  });
  const meanwhile = await currentImage(docker, made);
  if (meanwhile !== null) return meanwhile;
  onProgress({ image: shownAs, text: "building" });
  const started = performance.now();
  const proxies = await findProxies(env);
  await buildImage({
    docker,
    tag: madeTag(made),
    shownAs,
    files,
    arguments: {},
    labels: labelsOf(made),
    network: await networkFor(docker, proxies),
    proxies,
    onProgress,
    signal,
  });
  const image = await currentImage(docker, made);
  if (image === null) throw new ImageBuildError(shownAs, "the Engine ended the build without an image");
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  onProgress({ image: shownAs, text: `built, ${Math.round(image.sizeBytes / 1e6)} MB, ${seconds} s` });
  return image;
}

/** Null if there is none under this name, or if it is another one: names can be moved by hand. */
async function currentImage(docker: Docker, made: MadeFrom): Promise<FoundImage | null> {
  const image = await inspectImage(docker, madeTag(made));
  return image?.Config?.Labels?.[DIGEST] === made.digest ? foundImage(image) : null;
}

function labelsOf({ kind, project, name, digest }: MadeFrom): Record<string, string> {
  return { [KIND]: kind, [PROJECT]: project, [NAME]: name, [DIGEST]: digest };
}

const Listed = z.array(
  z.looseObject({
    Id: z.string(),
    Size: z.number(),
    RepoTags: z.array(z.string()).nullish(),
    Labels: z.record(z.string(), z.string()).nullish(),
  }),
);

/** An image counts by its label and its name together: a base image from elsewhere may have any label. */
export async function madeImages(docker: Docker): Promise<MadeImage[]> {
  const listed = await asked(() => docker.listImages({ filters: { label: [DIGEST] } }), Listed);
  return listed.flatMap(({ Id: id, Size: sizeBytes, RepoTags, Labels }) => {
    const { [KIND]: kind, [PROJECT]: project = "", [NAME]: name = "", [DIGEST]: digest = "" } = Labels ?? {};
    if (kind !== "build" && kind !== "apt") return [];
    const made = { kind, project, name, digest } as const;
    const tag = madeTag(made);
    return RepoTags?.includes(tag) ? [{ ...made, tag, id, sizeBytes }] : [];
  });
}

/** Ten minutes are for the layers; a registry that is there answers the first question at once. */
const FIRST_BYTE_TIMEOUT_MS = 30_000;

/** As `EngineImages.pull` says. */
export async function pullNamed(
  docker: Docker,
  reference: string,
  { onProgress, signal }: Pick<MakeImageRequest, "onProgress" | "signal">,
): Promise<FoundImage> {
  onProgress({ image: reference, text: "asking the registry" });
  const refusal = await pullTag(reference, { docker, onProgress, signal }, FIRST_BYTE_TIMEOUT_MS);
  if (refusal !== null) throw new ImageBuildError(reference, `it cannot be pulled: ${refusal}`);
  const image = await findImage(docker, reference);
  if (image === null) throw new ImageBuildError(reference, "the Engine pulled it but does not have it");
  onProgress({ image: reference, text: `pulled, ${Math.round(image.sizeBytes / 1e6)} MB` });
  return image;
}

export async function findImage(docker: Docker, reference: string): Promise<FoundImage | null> {
  const image = await inspectImage(docker, reference);
  return image === null ? null : foundImage(image);
}

function foundImage({ Id, Size, RepoDigests }: Docker.ImageInspectInfo): FoundImage {
  return { id: Id, sizeBytes: Size, digests: RepoDigests ?? [] };
}

/** As `EngineImages.remove` says. */
export async function removeImage(docker: Docker, reference: string): Promise<boolean> {
  try {
    await docker.getImage(reference).remove();
    return true;
  } catch (error) {
    if (isGone(error)) return false;
    if ((error as { statusCode?: unknown }).statusCode !== 409) throw error;
    throw new ImageBuildError(reference, "a container still uses it; try again when that has ended", { cause: error });
  }
}
