import { constants, fstatSync } from "node:fs";
import { Descriptor } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";
import type { PlannedSource } from "../plan/mounts.ts";
import { type RefusedSources, refusalOf } from "./refused-sources.ts";

/** A mount source that is held open: wherever its path leads later, the descriptor is what was checked. */
export interface PinnedSource extends PlannedSource {
  readonly host: string;
  /** How the daemon reaches the pinned directory, whatever its path now is (docs/architecture.md, fact: pinned-by-volume). */
  readonly descriptorPath: string;
  /** Size of a file when it was opened. */
  readonly bytes: number;
}

export interface Pins extends AsyncDisposable {
  readonly sources: ReadonlyMap<string, PinnedSource>;
}

/** Why a source cannot be a mount. `reason` never names a host path. */
export interface PinRefusal {
  readonly host: string;
  readonly reason: string;
}

export type Pinning =
  | { readonly ok: true; readonly pins: Pins }
  | { readonly ok: false; readonly refusals: PinRefusal[] };

/** The deepest host path that is walked. */
const MAX_COMPONENTS = 256;

/**
 * Opens each host path from `/`, component by component and never through a symbolic link, and keeps it open.
 * `ownDirs` are Corral's own directories, which are refused as sources of any other mount.
 * All paths are free of links when they are declared, so a link found here was planted since (docs/architecture.md,
 * fact: open-by-descriptor).
 */
export async function pinSources(
  hosts: Iterable<string>,
  refused: RefusedSources,
  ownDirs: readonly string[] = [],
): Promise<Pinning> {
  const pinned: Descriptor[] = [];
  const sources = new Map<string, PinnedSource>();
  const refusals: PinRefusal[] = [];
  const close = async (): Promise<void> => {
    for (const descriptor of pinned) descriptor[Symbol.dispose]();
  };
  for (const host of new Set([...hosts, ...ownDirs])) {
    try {
      const reason = !isPlain(host) ? CANNOT_BE_MOUNTED : ownDirs.includes(host) ? null : refusalOf(host, refused);
      if (reason !== null) throw new SourceRefused(reason);
      const descriptor = openWithoutLinks(host, refused.hostRoot);
      pinned.push(descriptor);
      if (refused.hostRoot !== "/") sameAsSeen(descriptor, host);
      sources.set(host, describe(descriptor, host));
    } catch (error) {
      const reason = reasonOf(error);
      if (reason === null) {
        await close();
        throw error;
      }
      refusals.push({ host, reason });
    }
  }
  if (refusals.length > 0) {
    await close();
    return { ok: false, refusals };
  }
  return { ok: true, pins: { sources, [Symbol.asyncDispose]: close } };
}

const CANNOT_BE_MOUNTED = "its path cannot be mounted";

/** Absolute, without `.`, `..` or empty components: the path is checked as text before it is opened. */
function isPlain(host: string): boolean {
  return host === "/" || host === `/${componentsOf(host).join("/")}`;
}

function componentsOf(host: string): string[] {
  return host.split("/").filter((component) => component !== "" && component !== "." && component !== "..");
}

class SourceRefused extends Error {}

/**
 * The last step reopens the checked file by its descriptor: the user that Corral runs as must be able to read it, although
 * the daemon, which is root, could mount it anyway. Synchronous, like all work with names.
 */
function openWithoutLinks(host: string, root: string): Descriptor {
  const components = componentsOf(host);
  if (components.length > MAX_COMPONENTS) throw new SourceRefused(CANNOT_BE_MOUNTED);
  // The Engine mounts only what is opened among its own mounts: of `/proc/PID/root` the link itself is followed, by its last slash.
  let current = Descriptor.name(root === "/" ? root : `${root}/`, true);
  try {
    for (const [index, component] of components.entries()) {
      const next = current.child(component, index < components.length - 1);
      current[Symbol.dispose]();
      current = next;
    }
    const found = current.stat();
    if (found.isSymbolicLink()) throw new SourceRefused("its path contains a symbolic link");
    if (!found.isDirectory() && !found.isFile())
      throw new SourceRefused("it is neither a directory nor a regular file");
    return current.reopen(constants.O_RDONLY);
  } finally {
    current[Symbol.dispose]();
  }
}

/** Corral judges and changes files where it sees them: the host must have the same ones there. */
function sameAsSeen(pinned: Descriptor, host: string): void {
  using seen = openWithoutLinks(host, "/");
  const [own, hosts] = [seen.stat(), pinned.stat()];
  if (own.dev !== hosts.dev || own.ino !== hosts.ino)
    throw new SourceRefused(
      "the host has something else at its path: mount it into Corral's container at the same path",
    );
}

function describe({ fd }: Descriptor, host: string): PinnedSource {
  const stat = fstatSync(fd, { bigint: true });
  return {
    host,
    kind: stat.isDirectory() ? "directory" : "file",
    device: String(stat.dev),
    inode: String(stat.ino),
    uid: Number(stat.uid),
    gid: Number(stat.gid),
    descriptorPath: `/proc/${process.pid}/fd/${fd}`,
    bytes: Number(stat.size),
  };
}

/** Null if the error is not about the source. */
function reasonOf(error: unknown): string | null {
  if (error instanceof SourceRefused) return error.message;
  switch (codeOf(error)) {
    case "ENOENT":
      return "it does not exist";
    case "ENOTDIR":
      return "one of its parent directories is a symbolic link or a file";
    case "EACCES":
      return "the user that Corral runs as may not open it";
    case "EAGAIN":
      return "another program holds it with a lease";
    case "ENAMETOOLONG":
      return CANNOT_BE_MOUNTED;
    default:
      return null;
  }
}
