import { governingMount } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { below, covers, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** A virtual path with the mount that governs it: what a backend works on. Made by {@link placeOf} alone. */
export interface Place {
  readonly path: VirtualPath;
  /** The path of the governing mount, by which a backend finds its root. */
  readonly mount: VirtualPath;
  /** The components of `path` below the mount; empty for the mount itself. None is `.`, `..` or holds a slash. */
  readonly parts: readonly string[];
}

/** Null where the mounts show nothing at `path`. */
export function placeOf(mounts: readonly Mount[], path: VirtualPath): Place | null {
  const mount = governingMount({ mounts }, path);
  if (mount === undefined) return null;
  const rest = below(mount.path, path) ?? "";
  return { path, mount: mount.path, parts: rest === "" ? [] : rest.split("/") };
}

/** True where a mount stands at or below `path`: what lies on the disk there is not what a worker sees. */
export function holdsMount(mounts: Iterable<VirtualPath>, path: VirtualPath): boolean {
  for (const mount of mounts) if (covers(path, mount)) return true;
  return false;
}
