import { statfsSync } from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
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
  readonly #places = new Map<string, Promise<PlaceBefore>>();

  /** Looks where nobody has looked yet. Of several who look at once, all go by the first: the others might count what it wrote. */
  async of(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
    const { dev, ino } = place.stat();
    const key = `${dev}:${ino}`;
    const known = this.#places.get(key) ?? looked(place, signal);
    this.#places.set(key, known);
    try {
      return await known;
    } catch (error) {
      // Whoever was cancelled in the middle has seen nothing.
      if (this.#places.get(key) === known) this.#places.delete(key);
      throw error;
    }
  }
}

async function looked(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
  const { bytes, names } = await treeUsage(place, Number.POSITIVE_INFINITY, signal);
  return { bytes, names, freeBytes: freeSpace(place).bytes };
}

/** Of the file system that a directory is on, in bytes. */
export interface FreeSpace {
  readonly bytes: number;
  readonly total: number;
}

/** A name takes some space of the file system's own, whatever it holds. */
const INODE_BYTES = 4096;

/** Synchronous: it is asked for often, and answered from memory. */
export function freeSpace(place: Descriptor): FreeSpace {
  const { bsize, bfree, blocks, files, ffree } = statfsSync(place.path());
  return { bytes: bsize * bfree + INODE_BYTES * ffree, total: bsize * blocks + INODE_BYTES * files };
}
