import type { Descriptor } from "../../files/host/descriptor.ts";
import { freeSpace } from "./free-space.ts";
import { treeUsage } from "./tree-usage.ts";

/** What one place took, and what was free around it, when it was first looked at. */
export interface PlaceBefore {
  readonly bytes: number;
  readonly names: number;
  readonly freeBytes: number;
}

/**
 * What there was before anything was written. The cells of one session share it: each goes on with what the ones before
 * have left of the limit.
 */
export class DiskBaseline {
  readonly #places = new Map<string, PlaceBefore>();

  /** Looks where nobody has looked yet. */
  async of(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
    const { dev, ino } = place.stat();
    const key = `${dev}:${ino}`;
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const { bytes, names } = await treeUsage(place, Number.POSITIVE_INFINITY, signal);
    const before = { bytes, names, freeBytes: (await freeSpace(place)).bytes };
    this.#places.set(key, before);
    return before;
  }
}
