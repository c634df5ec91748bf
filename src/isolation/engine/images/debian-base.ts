import type Docker from "dockerode";
import { z } from "zod";
import { writeAtomically } from "../../../platform/write-file.ts";
import { statePaths } from "../../../state/state-dir.ts";
import { BASE_NAME, IMAGE_PREFIX, ImageBuildError, type ImageStatus } from "../../port/images.ts";
import { BOOTSTRAP_TAG, type BootstrapRequest, bootstrapDebian, readMessages } from "./bootstrap.ts";
import { BASE_LABEL, catalogImages, type ImagesRequest, inspectImage, isCurrent, readRecord } from "./catalog.ts";

const PUBLIC_TAG = "debian:bookworm-slim";

/** The Debian base of every image, and its source. */
const DebianBase = z.object({
  source: z.enum(["registry", "debootstrap"]),
  /** `debian@sha256:…` from the registry, or the tag of the image that Corral made. */
  reference: z.string(),
  /** The Engine's id of it. */
  id: z.string(),
});
export type DebianBase = z.infer<typeof DebianBase>;
const Record = z.object({ version: z.literal(1), base: DebianBase });

/** The Debian base that exists already, without asking any registry: the recorded one, else one that the Engine has. */
export async function findDebianBase(docker: Docker, stateDir: string): Promise<DebianBase | null> {
  const recorded = await recordedBase(stateDir);
  if (recorded && (await inspectImage(docker, recorded.id))) return recorded;
  return recorded?.source === "registry" ? null : ((await pulledBase(docker)) ?? (await bootstrappedBase(docker)));
}

/**
 * The Debian base, fetched if it is missing: by the digest recorded earlier, else the public tag, else made from
 * Debian's packages if no registry answers. It is recorded, so that later builds use the same one.
 */
export async function ensureDebianBase(request: BootstrapRequest): Promise<DebianBase> {
  const { docker, stateDir } = request;
  const base = (await findDebianBase(docker, stateDir)) ?? (await fetchBase(request));
  await writeAtomically(statePaths(stateDir).imagesRecord, `${JSON.stringify({ version: 1, base }, null, 2)}\n`);
  return base;
}

async function fetchBase(request: BootstrapRequest): Promise<DebianBase> {
  const { docker, stateDir, onProgress, signal } = request;
  const recorded = await recordedBase(stateDir);
  const reference = recorded?.source === "registry" ? recorded.reference : PUBLIC_TAG;
  onProgress({ image: reference, text: "asking the registry" });
  const refusal = await pullTag(reference, request);
  const pulled = refusal === null ? await pulledBase(docker, reference) : null;
  if (pulled) return pulled;
  onProgress({
    image: BOOTSTRAP_TAG,
    text: `no registry provided ${reference} (${refusal}); making it from Debian's packages`,
  });
  try {
    await bootstrapDebian(request);
  } catch (cause) {
    signal?.throwIfAborted();
    throw new ImageBuildError(
      reference,
      `no registry provided it (${refusal}), and ${(cause as Error).message}\n${ADVICE}`,
      { cause },
    );
  }
  const made = await bootstrappedBase(docker);
  if (!made) throw new ImageBuildError(BOOTSTRAP_TAG, "the Engine imported it but does not list it");
  return made;
}

const ADVICE = `Either give the Engine access to a registry, or load the image by hand (docker load) from a machine that has ${PUBLIC_TAG}, or run this as root on Debian or Ubuntu.`;

/** Only an image with a digest from a registry counts: a local image of the same name may be anything. */
async function pulledBase(docker: Docker, reference = PUBLIC_TAG): Promise<DebianBase | null> {
  const image = await inspectImage(docker, reference);
  const digest = image?.RepoDigests?.find((candidate) => candidate.startsWith("debian@sha256:"));
  return image && digest ? { source: "registry", reference: digest, id: image.Id } : null;
}

async function bootstrappedBase(docker: Docker): Promise<DebianBase | null> {
  const image = await inspectImage(docker, BOOTSTRAP_TAG);
  return image ? { source: "debootstrap", reference: BOOTSTRAP_TAG, id: image.Id } : null;
}

async function recordedBase(stateDir: string): Promise<DebianBase | null> {
  return Record.safeParse(await readRecord(statePaths(stateDir).imagesRecord)).data?.base ?? null;
}

const FIRST_BYTE_TIMEOUT_MS = 8_000;
const TOTAL_TIMEOUT_MS = 10 * 60_000;

/** Pulls a tag such as `debian:bookworm-slim`, or `debian@sha256:…`. Null on success, else why no registry provided it. */
export async function pullTag(
  reference: string,
  { docker, onProgress, signal }: Pick<BootstrapRequest, "docker" | "onProgress" | "signal">,
  firstByteTimeoutMs = FIRST_BYTE_TIMEOUT_MS,
): Promise<string | null> {
  const givenUp = new AbortController();
  const firstByte = setTimeout(
    () => givenUp.abort(new Error(`no registry answered within ${firstByteTimeoutMs / 1000} s`)),
    firstByteTimeoutMs,
  );
  // Cleared at the end: the timer of AbortSignal.timeout would keep the process alive once a request listens to it.
  const total = setTimeout(
    () => givenUp.abort(new Error(`the registry took longer than ${TOTAL_TIMEOUT_MS / 60_000} minutes`)),
    TOTAL_TIMEOUT_MS,
  );
  const abortSignal = AbortSignal.any([givenUp.signal, ...(signal ? [signal] : [])]);
  try {
    const answer = await docker.pull(reference, { abortSignal });
    for await (const message of readMessages(answer)) {
      clearTimeout(firstByte);
      if (message.error) return message.error;
      // The progress bars of each layer are for terminals; the other lines are enough.
      if (message.status && !/^(Downloading|Extracting|Waiting|Verifying|Pulling fs)/.test(message.status)) {
        onProgress({ image: reference, step: "pull", text: message.status });
      }
    }
    return null;
  } catch (error) {
    signal?.throwIfAborted();
    return abortSignal.aborted
      ? String(abortSignal.reason?.message ?? abortSignal.reason)
      : (error as Error).message.trim();
  } finally {
    clearTimeout(firstByte);
    clearTimeout(total);
  }
}

export async function imageStatus(request: ImagesRequest): Promise<ImageStatus[]> {
  const { docker, imagesDir, stateDir, prefix = IMAGE_PREFIX } = request;
  const sources = await catalogImages(imagesDir, prefix);
  const [debian, ...images] = await Promise.all([
    findDebianBase(docker, stateDir),
    ...sources.map((source) => inspectImage(docker, source.tag)),
  ]);
  const base = images[0];
  return sources.map((source, index) => {
    const image = images[index] ?? null;
    // If the Debian image was removed, the base image's label still says on what it was built.
    const builtOn = source.name === BASE_NAME ? (debian?.id ?? image?.Config.Labels?.[BASE_LABEL]) : base?.Id;
    const state = image === null ? "missing" : builtOn && isCurrent(image, source, builtOn) ? "present" : "stale";
    return { name: source.name, tag: source.tag, state, id: image?.Id ?? null, sizeBytes: image?.Size ?? null };
  });
}
