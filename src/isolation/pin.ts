import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { PlannedSource } from "./mounts.ts";
import { type RefusedSources, refusalOf } from "./refused-sources.ts";

/** A mount source held open: whatever its path says later, the descriptor is what was checked. */
export interface PinnedSource extends PlannedSource {
  readonly host: string;
  /** How the daemon reaches the pinned directory, whatever its path now says (design fact 2). */
  readonly descriptorPath: string;
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
 * Opens each host path from `/` on, component by component and never through a symbolic link, and keeps it open.
 * `ownDirs` are Corral's own, which are refused to everybody else.
 * All paths are free of links when they are declared, so a link found here was planted since (design facts 1 and 7).
 */
export async function pinSources(
  hosts: Iterable<string>,
  refused: RefusedSources,
  ownDirs: readonly string[] = [],
): Promise<Pinning> {
  const handles: FileHandle[] = [];
  const sources = new Map<string, PinnedSource>();
  const refusals: PinRefusal[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(handles.splice(0).map((handle) => handle.close()));
  };
  for (const host of new Set([...hosts, ...ownDirs])) {
    try {
      const reason = !isPlain(host) ? CANNOT_BE_MOUNTED : ownDirs.includes(host) ? null : refusalOf(host, refused);
      if (reason !== null) throw new SourceRefused(reason);
      const handle = await openWithoutLinks(host);
      handles.push(handle);
      sources.set(host, await describe(handle, host));
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

/** Absolute, and without anything that would lead elsewhere than it says: it is judged by its text before it is walked. */
function isPlain(host: string): boolean {
  return host === "/" || host === `/${componentsOf(host).join("/")}`;
}

function componentsOf(host: string): string[] {
  return host.split("/").filter((component) => component !== "" && component !== "." && component !== "..");
}

class SourceRefused extends Error {}

/** Linux's O_PATH: names a file without opening it, so that looking at a FIFO or a device does nothing to it. */
const O_PATH = 0o10000000;

/**
 * The last step reopens what was looked at, by descriptor: it must be readable by the user that Corral runs as,
 * although the daemon, which is root, could mount it without.
 */
async function openWithoutLinks(host: string): Promise<FileHandle> {
  const components = componentsOf(host);
  if (components.length > MAX_COMPONENTS) throw new SourceRefused(CANNOT_BE_MOUNTED);
  let current = await open("/", O_PATH);
  try {
    for (const [index, component] of components.entries()) {
      const inner = index < components.length - 1 ? constants.O_DIRECTORY : 0;
      const next = await open(`/proc/self/fd/${current.fd}/${component}`, O_PATH | constants.O_NOFOLLOW | inner);
      await current.close();
      current = next;
    }
    const found = await current.stat();
    if (found.isSymbolicLink()) throw new SourceRefused("a symbolic link stands in its path");
    if (!found.isDirectory() && !found.isFile())
      throw new SourceRefused("it is neither a directory nor a regular file");
    return await open(`/proc/self/fd/${current.fd}`, constants.O_RDONLY);
  } finally {
    await current.close();
  }
}

async function describe(handle: FileHandle, host: string): Promise<PinnedSource> {
  const stat = await handle.stat({ bigint: true });
  return {
    host,
    kind: stat.isDirectory() ? "directory" : "file",
    device: String(stat.dev),
    inode: String(stat.ino),
    uid: Number(stat.uid),
    gid: Number(stat.gid),
    descriptorPath: `/proc/${process.pid}/fd/${handle.fd}`,
  };
}

/** Null where the error says nothing about the source. */
function reasonOf(error: unknown): string | null {
  if (error instanceof SourceRefused) return error.message;
  switch ((error as NodeJS.ErrnoException).code) {
    case "ENOENT":
      return "it does not exist";
    case "ENOTDIR":
      return "a symbolic link or a file stands in the place of one of its directories";
    case "EACCES":
      return "it may not be opened by the user that corral runs as";
    case "ENAMETOOLONG":
      return CANNOT_BE_MOUNTED;
    default:
      return null;
  }
}
