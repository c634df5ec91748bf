import { statfsSync } from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { treeUsage } from "./tree-usage.ts";

/** The size of one directory, and the free space of its file system, at the first check. */
export interface PlaceBefore {
  readonly bytes: number;
  readonly names: number;
  readonly freeBytes: number;
}

/**
 * What there was before anything was written. The cells of one session share it: each may use what the ones before it
 * have left of the limit.
 */
export class DiskBaseline {
  readonly #places = new Map<string, Promise<PlaceBefore>>();

  /** Measures each place once. Parallel callers share the first measurement: a later one might include what was written since. */
  async of(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
    const { dev, ino } = place.stat();
    const key = `${dev}:${ino}`;
    const known = this.#places.get(key) ?? looked(place, signal);
    this.#places.set(key, known);
    try {
      return await known;
    } catch (error) {
      // A cancelled measurement is not a result.
      if (this.#places.get(key) === known) this.#places.delete(key);
      throw error;
    }
  }
}

async function looked(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
  const { bytes, names } = await treeUsage(place, Number.POSITIVE_INFINITY, signal);
  return { bytes, names, freeBytes: freeSpace(place).bytes };
}

/** Every name takes some space of the file system itself. */
const INODE_BYTES = 4096;

/** Of the file system of a directory, in bytes. Synchronous: it is called often, and the kernel answers from memory. */
export function freeSpace(place: Descriptor): { readonly bytes: number; readonly total: number } {
  const { bsize, bfree, blocks, files, ffree } = statfsSync(place.path());
  return { bytes: bsize * bfree + INODE_BYTES * ffree, total: bsize * blocks + INODE_BYTES * files };
}
