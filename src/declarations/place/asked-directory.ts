import { lstat } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import { plantedLinkFault, resolveHostPlace } from "./host-place.ts";

/** Whether a path that a worker asked for is a directory, or is in one; null if neither can be granted. */
export type AskedDirectory = "itself" | "around" | null;

/** The deepest host path that is walked. */
const MAX_COMPONENTS = 256;

/**
 * The directory that a worker's path means: itself, or the one around it if it is a file or does not exist
 * yet. `below` is the part of it below `base`, a host directory that is known to be none of the worker's making. No link
 * in it is followed, since the worker may have planted it; one anywhere, the last component included, means no directory.
 */
export async function askedDirectory(base: string, below: string): Promise<AskedDirectory> {
  const parts = below.split("/").filter((part) => part !== "");
  if (parts.length > MAX_COMPONENTS) return null;
  let place = base;
  if (parts.length === 0) return (await kindAt(base)) === "directory" ? "itself" : null;
  for (const [index, part] of parts.entries()) {
    place = join(place, part);
    const last = index === parts.length - 1;
    const kind = await kindAt(place);
    if (kind === "directory") continue;
    return last && (kind === "file" || kind === "nothing") ? "around" : null;
  }
  return "itself";
}

async function kindAt(place: string): Promise<"directory" | "file" | "nothing" | "other"> {
  try {
    const found = await lstat(place);
    return found.isDirectory() ? "directory" : found.isFile() ? "file" : "other";
  } catch (error) {
    return hasCode(error, "ENOENT") ? "nothing" : "other";
  }
}

/**
 * The real places of the host folders in which a worker may be granted something. Links in the owner's configuration are
 * followed, except one in a directory that a worker may write: such a folder, like a missing one, allows nothing.
 */
export async function allowedFolders(
  projectDir: string,
  written: readonly string[],
  writable: readonly string[],
): Promise<string[]> {
  const places = await Promise.all(written.map((raw) => resolveHostPlace(projectDir, raw)));
  return places.flatMap((place) =>
    place.ok && place.directory && plantedLinkFault(place.links, writable) === null ? [place.host] : [],
  );
}
