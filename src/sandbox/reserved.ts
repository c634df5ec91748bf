import { covers, ROOT, type VirtualPath } from "./virtual-path.ts";

/** Directories of a cell in which a mount would hide what is the system's or Corral's. */
const OF_THE_CELL: ReadonlySet<string> = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc run sbin sys usr var attachments .corral".split(" "),
);

/** Directories that are the cell's own; a mount may be below them, where nothing is at first. */
const OWN_PARENTS: ReadonlySet<string> = new Set(["root", "tmp"]);

/** The home of every cell without a mount `home`, in memory. */
const HOME = "/home/worker" as VirtualPath;

/** Where the namespace of a rooted sandbox (the root form) is in a cell, whose own `/` is the image's. */
export const ROOTED_BASE = "/project" as VirtualPath;
/** The directory of a rooted namespace in its cell. No mount may be declared by that name, in either kind of namespace. */
const OF_ROOTED = "project";

/**
 * True if nothing can be mounted at `path`: `/` itself, and the cell's own directories. A rooted namespace has its own
 * directory in the cell, and hides none of them.
 */
export function isReserved(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  if (path === ROOT || rooted) return path === ROOT;
  const [, first = "", second] = path.split("/");
  // Hidden directories of root hold keys and settings, and are no checkout.
  const isRootsOwn = first === "root" && second?.startsWith(".") === true;
  return OF_THE_CELL.has(first) || isRootsOwn || (OWN_PARENTS.has(first) && second === undefined);
}

/** True for a place at, in or around the cell's home, which a directory of another place would replace. */
export function hidesHome(path: VirtualPath): boolean {
  return covers(path, HOME) || covers(HOME, path);
}

/** True for a place below a directory that a cell has in memory. */
export function isInMemory(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  return !rooted && OWN_PARENTS.has(path.split("/")[1] ?? "");
}

/** True for a name that no declared mount may have. */
export function isReservedName(name: string): boolean {
  return OF_THE_CELL.has(name) || OWN_PARENTS.has(name) || name === OF_ROOTED;
}
