import { statfsSync } from "node:fs";
import { dirname } from "node:path";

/** Errors of the host, which say nothing about the run: no descriptor, no memory, no space, or a disk that fails. */
const OF_THE_HOST = ["EDQUOT", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EROFS"] as const;

export function isHostTrouble(error: unknown): error is NodeJS.ErrnoException {
  return hasCode(error, ...OF_THE_HOST);
}

const MAX_CHARACTERS = 500;

/** An unexpected error in one line for the user, with the place in Corral that threw it. Never for a worker: it may name host paths. */
export function bugText(error: unknown): string {
  if (!(error instanceof Error)) return String(error).slice(0, MAX_CHARACTERS);
  const place = /\n\s+at (.*)/.exec(error.stack ?? "")?.[1];
  const text = `${error.name}: ${error.message}`.replaceAll(/\s+/g, " ").slice(0, MAX_CHARACTERS);
  return place === undefined ? text : `${text} (at ${place.slice(0, MAX_CHARACTERS)})`;
}

/** The code of an error of the operating system or of Node, such as `ENOENT`; undefined if it has none. */
export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === "string" ? code : undefined;
}

/** True if the error has one of these codes. */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes(codeOf(error) ?? "");
}

/** For `catch`: null for an error that has one of these codes; another error is thrown again. */
export function nullFor(...codes: readonly string[]): (error: unknown) => null {
  return (error) => {
    if (hasCode(error, ...codes)) return null;
    throw error;
  };
}

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
