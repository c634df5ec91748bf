import { BASE_NAME, IMAGE_PREFIX, type ImageStatus } from "../../port/images.ts";
import { BASE_LABEL, catalogImages, type ImagesRequest, inspectImage, isCurrent } from "./catalog.ts";
import { findDebianBase } from "./debian-base.ts";

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
