import { ROOT, type VirtualPath } from "./virtual-path.ts";

/** Directories of a cell that a mount would hide: the system's own and Corral's. */
const RESERVED: ReadonlySet<string> = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc root run sbin sys tmp usr var attachments .corral".split(" "),
);

/**
 * True where nothing can be mounted while a cell runs: `/` itself, and the cell's own directories. A rooted namespace
 * stands in a directory of its own in the cell, and hides none of them.
 */
export function isReserved(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  return path === ROOT || (!rooted && RESERVED.has(path.split("/")[1] ?? ""));
}
