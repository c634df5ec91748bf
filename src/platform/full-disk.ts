import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { hasCode } from "./errno.ts";

/** There is no room where something has to be written. By its code it is a trouble of the host. */
export class DiskFull extends Error {
  override readonly name = "DiskFull";
  readonly code = "ENOSPC";

  constructor(place: string, options?: ErrorOptions) {
    super(fullText(place), options);
  }
}

export function fullText(place: string): string {
  return `the disk of ${place} is full: free space there`;
}

export function isDiskFull(error: unknown): boolean {
  return hasCode(error, "ENOSPC", "EDQUOT");
}

export interface Room {
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** So little is left, of bytes or of files, that programs which write fail. */
  readonly isFull: boolean;
}

const FULL_BYTES = 16 * 1024 ** 2;
/** A small file system is full with less. */
const FULL_PART = 1 / 50;

/** Of the file system of a path, which need not exist yet. Null if it cannot be asked. */
export function roomAt(path: string): Room | null {
  try {
    const { bsize, blocks, bavail, bfree, files, ffree } = statfsSync(path);
    const [totalBytes, freeBytes] = [blocks * bsize, (process.geteuid?.() === 0 ? bfree : bavail) * bsize];
    const least = Math.min(FULL_BYTES, totalBytes * FULL_PART);
    // Some file systems count neither blocks nor files.
    const isFull = (totalBytes > 0 && freeBytes <= least) || (files > 0 && ffree === 0);
    return { freeBytes, totalBytes, isFull };
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTDIR") || dirname(path) === path) return null;
    return roomAt(dirname(path));
  }
}

/** The first of the places whose disk is full; null: none is. */
export function fullPlace(places: readonly string[]): string | null {
  return places.find((place) => roomAt(place)?.isFull) ?? null;
}
