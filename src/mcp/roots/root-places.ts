import { fileURLToPath } from "node:url";
import { resolveHostPlace } from "../../declarations/place/host-place.ts";

/** More roots of one client are left out, as if it had not named them. */
const MAX_ROOTS = 100;
const MAX_URI_CHARS = 8192;

/** The host directories that a client's roots stand for. */
export interface RootPlaces {
  /** Real, without links; sorted. */
  readonly hosts: readonly string[];
  /** How many roots are no directory of this machine, or were too many. */
  readonly unusable: number;
}

/** Looks each root up once. What is none of a directory opens nothing: roots only ever take away. */
export async function rootPlaces(uris: readonly string[]): Promise<RootPlaces> {
  const places = await Promise.all(uris.slice(0, MAX_ROOTS).map(placeOf));
  const hosts = [...new Set(places.filter((place) => place !== null))].sort();
  const usable = places.filter((place) => place !== null).length;
  return { hosts, unusable: uris.length - usable };
}

async function placeOf(uri: string): Promise<string | null> {
  const path = uri.length > MAX_URI_CHARS ? null : pathOf(uri);
  if (path === null) return null;
  // What cannot be looked up for another reason than its own is no root either.
  const place = await resolveHostPlace("/", path).catch(() => null);
  return place?.ok && place.directory ? place.host : null;
}

function pathOf(uri: string): string | null {
  try {
    const url = new URL(uri);
    if (url.protocol !== "file:" || (url.hostname !== "" && url.hostname !== "localhost")) return null;
    url.hostname = "";
    const path = fileURLToPath(url);
    return path.includes("\0") ? null : path;
  } catch {
    return null;
  }
}
