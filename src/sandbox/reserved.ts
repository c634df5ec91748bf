import { ROOT, type VirtualPath } from "./virtual-path.ts";

/** Directories of a cell that a mount would hide: the system's and Corral's. */
const OF_THE_CELL: ReadonlySet<string> = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc root run sbin sys tmp usr var attachments .corral".split(" "),
);

/** The directory of a rooted namespace in its cell. No mount may be declared by that name, in either kind of namespace. */
const OF_ROOTED = "project";

/**
 * True if nothing can be mounted at `path`: `/` itself, and the cell's own directories. A rooted namespace has its own
 * directory in the cell, and hides none of them.
 */
export function isReserved(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  return path === ROOT || (!rooted && OF_THE_CELL.has(path.split("/")[1] ?? ""));
}

/** True for a name that no declared mount may have. */
export function isReservedName(name: string): boolean {
  return OF_THE_CELL.has(name) || name === OF_ROOTED;
}
