import type Docker from "dockerode";
import { sha256 } from "../../../platform/sha256.ts";
import type { ImageSource } from "./catalog.ts";

/** What an image was made of. */
export const FINGERPRINT_LABEL = "dev.corral.image";
/** The id of the image it stands on. */
export const BASE_LABEL = "dev.corral.base";

/** Changes when a file of the image's folder changes, or the image it stands on. */
export function fingerprint(source: ImageSource, baseId: string): string {
  return sha256(`${source.context.sha256}\n${baseId}\n`);
}

/** Was `image` made of these files, on this base? */
export function isCurrent(image: Docker.ImageInspectInfo, source: ImageSource, baseId: string): boolean {
  return image.Config.Labels?.[FINGERPRINT_LABEL] === fingerprint(source, baseId);
}
