import { statfsSync } from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";

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
