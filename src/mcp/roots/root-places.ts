import { fileURLToPath } from "node:url";
import { resolveHostPlace } from "../../declarations/place/host-place.ts";

/** Further roots of one client are ignored. */
const MAX_ROOTS = 100;
const MAX_URI_CHARS = 8192;

/** The host directories that a client's roots name. */
export interface RootPlaces {
  /** Real, without links; sorted. */
  readonly hosts: readonly string[];
  /** How many roots are not directories of this machine, or exceed the limit. */
  readonly unusable: number;
}

/** Looks each root up once. A root that is not a directory grants nothing: roots only restrict. */
export async function rootPlaces(uris: readonly string[]): Promise<RootPlaces> {
  const places = await Promise.all(uris.slice(0, MAX_ROOTS).map(placeOf));
  const hosts = [...new Set(places.filter((place) => place !== null))].sort();
  const usable = places.filter((place) => place !== null).length;
  return { hosts, unusable: uris.length - usable };
}

async function placeOf(uri: string): Promise<string | null> {
  const path = uri.length > MAX_URI_CHARS ? null : pathOf(uri);
  if (path === null) return null;
  // A root that cannot be looked up for any other reason is ignored too.
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
