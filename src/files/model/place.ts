import { governingMount } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { below, covers, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** A virtual path and its mount, which is what a backend works on. Only {@link placeOf} makes it. */
export interface Place {
  readonly path: VirtualPath;
  /** The path of the mount, by which a backend finds its root. */
  readonly mount: VirtualPath;
  /** The components of `path` below the mount; empty for the mount itself. None is `.`, `..` or holds a slash. */
  readonly parts: readonly string[];
}

/** Null if no mount contains `path`. */
export function placeOf(mounts: readonly Mount[], path: VirtualPath): Place | null {
  const mount = governingMount({ mounts }, path);
  if (mount === undefined) return null;
  const rest = below(mount.path, path) ?? "";
  return { path, mount: mount.path, parts: rest === "" ? [] : rest.split("/") };
}

/** True if there is a mount at or below `path`: the worker sees that mount, not what the disk has there. */
export function holdsMount(mounts: Iterable<VirtualPath>, path: VirtualPath): boolean {
  for (const mount of mounts) if (covers(path, mount)) return true;
  return false;
}
