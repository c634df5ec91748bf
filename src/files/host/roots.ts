import type { Mount } from "../../sandbox/mount.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { type FileOperation, unfit } from "../model/refusals.ts";
import { Descriptor } from "./descriptor.ts";

/** A mount's place on the host, held open as a cell's mount holds it. */
export interface Root {
  readonly path: VirtualPath;
  readonly descriptor: Descriptor;
  /** False for a mount that is a single file. */
  readonly directory: boolean;
  /** The mounts strictly below. They hide what the disk has there. */
  readonly hidden: readonly VirtualPath[];
}

export interface Roots extends Disposable {
  get(operation: FileOperation, path: VirtualPath): Root;
}

/** A mount to open. `identity`: if given, it must be this file, as `device:inode`. */
export type HostMount = Pick<Mount, "path" | "host"> & { readonly identity?: string };

/** Opens every mount. One that cannot be opened refuses its own operations; the others work. */
export function openRoots(mounts: readonly HostMount[]): Roots {
  const roots = new Map<VirtualPath, Root | null>();
  for (const { path, host, identity } of mounts) {
    const hidden = mounts.map((other) => other.path).filter((other) => other !== path && covers(path, other));
    const descriptor = identified(pinned(host), identity);
    const directory = descriptor?.stat().isDirectory() ?? false;
    roots.set(path, descriptor === null ? null : { path, descriptor, directory, hidden });
  }
  return {
    get: (operation, path) => {
      const root = roots.get(path);
      if (root === undefined) throw new RangeError(`there is no mount at ${path}`);
      if (root === null) throw unfit(operation, path, "the granted directory cannot be opened on this machine.");
      return root;
    },
    [Symbol.dispose]: () => {
      for (const root of roots.values()) root?.descriptor[Symbol.dispose]();
    },
  };
}

function identified(descriptor: Descriptor | null, identity: string | undefined): Descriptor | null {
  if (descriptor === null || identity === undefined || descriptor.identity() === identity) return descriptor;
  descriptor[Symbol.dispose]();
  return null;
}

/** Opens a host path from `/` on, never through a link: it had no links when it was declared, so one was planted since. */
export function pinned(host: string): Descriptor | null {
  const parts = host.split("/").filter((part) => part !== "");
  try {
    using top = Descriptor.name("/", true);
    using folder = top.below(parts.slice(0, -1));
    const found = folder.child(parts.at(-1) ?? ".");
    const stats = found.stat();
    if (stats.isDirectory() || stats.isFile()) return found;
    found[Symbol.dispose]();
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
  }
  return null;
}
