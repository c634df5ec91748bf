import { ROOT, type VirtualPath } from "./virtual-path.ts";

/** Directories of a cell that a mount would hide: the system's own and Corral's. */
const OF_THE_CELL: ReadonlySet<string> = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc root run sbin sys tmp usr var attachments .corral".split(" "),
);

/** Where a rooted namespace stands in its cell; another one may have it, but no mount is declared by that name. */
const OF_ROOTED = "project";

/**
 * True where nothing can be mounted while a cell runs: `/` itself, and the cell's own directories. A rooted namespace
 * stands in a directory of its own in the cell, and hides none of them.
 */
export function isReserved(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  return path === ROOT || (!rooted && OF_THE_CELL.has(path.split("/")[1] ?? ""));
}

/** True of a name that no declared mount may have, whichever namespace it will stand in. */
export function isReservedName(name: string): boolean {
  return OF_THE_CELL.has(name) || name === OF_ROOTED;
}
