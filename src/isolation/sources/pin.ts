import { constants, fstatSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path/posix";
import { Descriptor, mountIdOf } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { PlannedSource } from "../plan/mounts.ts";
import type { PlannedMount } from "../plan/plan.ts";
import { type RefusedSources, refusalOf } from "./refused-sources.ts";

/** More ancestors than a process of a container has. */
const MAX_ANCESTORS = 100;

/**
 * The nearest process above this one that has other mounts: what started its container, and lives as long. Null if none can be seen
 * (docs/facts.md, fact: pins-of-a-container).
 */
export function outerProcess(): number | null {
  try {
    const own = readlinkSync("/proc/self/ns/mnt");
    let pid = process.ppid;
    for (let step = 0; step < MAX_ANCESTORS && pid > 0; step += 1) {
      if (readlinkSync(`/proc/${pid}/ns/mnt`) !== own) return pid;
      pid = Number(/^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1] ?? 0);
    }
  } catch {
    // A process that this one may not inspect.
  }
  return null;
}

/** A mount source that is held open: wherever its path leads later, the descriptor is what was checked. */
export interface PinnedSource extends PlannedSource {
  readonly host: string;
  /** How the daemon reaches the pinned directory, whatever its path now is (docs/facts.md, fact: pinned-by-volume). */
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

/**
 * The planned mounts whose mount point, as what is held open around it shows it, is not the file that is held open for it: a mount
 * inside of another needs a place there, and a folder that is held in its place must be the one that programs of the host find.
 */
export function misplacedMounts(mounts: readonly PlannedMount[], { sources }: Pins): Violation[] {
  return mounts.flatMap((mount) => {
    const outer = mounts.findLast(({ path }) => mount.path.startsWith(`${path}/`));
    const around = outer && sources.get(outer.host);
    // If nothing runs, what does not exist yet is not pinned.
    const reason = around && sources.has(mount.host) && whyMisplaced(mount, outer, around);
    return reason ? [{ code: "MOUNT_SOURCE_REFUSED", path: mount.path, reason }] : [];
  });
}

function whyMisplaced(mount: PlannedMount, outer: PlannedMount, { descriptorPath }: PinnedSource): string | null {
  const names = mount.path.slice(outer.path.length + 1).split("/");
  try {
    using top = Descriptor.name(`${descriptorPath}/.`, true);
    const mountId = mountIdOf(top);
    const isSameMount = (step: Descriptor): void => {
      if (mountIdOf(step) !== mountId) throw new SourceRefused("another file system is mounted on the way to it");
    };
    using folder = top.below(names.slice(0, -1), isSameMount);
    using place = folder.child(names.at(-1) ?? "");
    if (mount.origin === "anchor") isSameMount(place);
    const isOfOuter = mount.host === join(outer.host, ...names);
    const isSame = isOfOuter
      ? place.identity() === `${mount.identity.device}:${mount.identity.inode}`
      : place.stat().isDirectory() === (mount.kind === "directory") && !place.stat().isSymbolicLink();
    return isSame ? null : "the directory around it has something else in its place: it was replaced meanwhile";
  } catch (error) {
    const reason = reasonOf(error);
    if (reason === null) throw error;
    return `its place in the directory around it cannot be used: ${reason}`;
  }
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
