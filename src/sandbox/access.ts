import posix from "node:path/posix";
import {
  FileTooLargeError,
  PathNotInSandboxError,
  PathNotWritableError,
  type SandboxError,
  SuffixNotAllowedError,
} from "./errors.ts";
import type { Access, Mount } from "./mount.ts";
import type { Sandbox } from "./sandbox.ts";
import { below, covers, type PathParse, parseVirtualPath, ROOT, type VirtualPath } from "./virtual-path.ts";

/** All that access depends on. */
type Mounted = Pick<Sandbox, "mounts">;

/** What a caller knows about the file it checks. */
export interface FileFacts {
  /** In bytes; absent: not checked. */
  readonly size?: number;
  /** Suffixes and sizes constrain files, not directories. */
  readonly directory?: boolean;
}

/** The mount that says what `path` allows: the one with the longest prefix. */
export function governingMount({ mounts }: Mounted, path: VirtualPath): Mount | undefined {
  let longest: Mount | undefined;
  for (const mount of mounts) {
    if (covers(mount.path, path) && (longest === undefined || covers(longest.path, mount.path))) longest = mount;
  }
  return longest;
}

export function accessOf(sandbox: Mounted, path: VirtualPath): Access {
  const mount = governingMount(sandbox, path);
  if (mount === undefined) return "none";
  return mount.mode === "rw" ? "write" : "read";
}

export function canRead(sandbox: Mounted, path: VirtualPath): boolean {
  return accessOf(sandbox, path) !== "none";
}

export function canWrite(sandbox: Mounted, path: VirtualPath): boolean {
  return accessOf(sandbox, path) === "write";
}

/** True where a directory is shown at `path`: a mount's, or one that is there because a mount stands below it; `/` always is. */
export function isShown({ mounts }: Mounted, path: VirtualPath): boolean {
  if (path === ROOT || governingMount({ mounts }, path) !== undefined) return true;
  return mounts.some((mount) => covers(path, mount.path));
}

/** Where `path` stands on the host, or null where the sandbox shows nothing there. Never to be shown to a worker. */
export function hostPathOf(sandbox: Mounted, path: VirtualPath): string | null {
  const mount = governingMount(sandbox, path);
  return mount === undefined ? null : hostBelow(mount, path);
}

/** The host path of `path`, which stands at or below the mount. */
export function hostBelow(mount: Mount, path: VirtualPath): string {
  return posix.join(mount.host, below(mount.path, path) ?? "");
}

/** Reads a worker's text for a path as its own sandbox means it: its working directory, its mounts' names, its home. */
export function parsePathIn(sandbox: Sandbox, raw: string): PathParse {
  const mountNames = [...new Set(sandbox.mounts.map((mount) => mount.name))];
  // Where only a part of it is seen, a cell's home is in memory: `~` must not mean one thing to tools and another to commands.
  const home = sandbox.mounts.find(({ name, path }) => name === "home" && path === "/home");
  return parseVirtualPath(raw, { workingDir: sandbox.workingDir, mountNames, ...(home && { home: home.path }) });
}

/** The topmost paths that can be read, for messages. */
export function readablePaths({ mounts }: Mounted): VirtualPath[] {
  return mounts.filter((mount) => enclosing(mounts, mount) === undefined).map((mount) => mount.path);
}

/** The topmost paths that can be written, for messages. */
export function writablePaths({ mounts }: Mounted): VirtualPath[] {
  const writable = mounts.filter((mount) => mount.mode === "rw" && enclosing(mounts, mount)?.mode !== "rw");
  return writable.map((mount) => mount.path);
}

/** Why `path` may not be read, or null. */
export function checkRead(sandbox: Mounted, path: VirtualPath, facts: FileFacts = {}): SandboxError | null {
  const mount = governingMount(sandbox, path);
  if (mount === undefined) return new PathNotInSandboxError(path, readablePaths(sandbox));
  return checkConstraints(mount, path, facts);
}

/** Why `path` may not be written, or null. Consent is another question, and is asked elsewhere. */
export function checkWrite(sandbox: Mounted, path: VirtualPath, facts: FileFacts = {}): SandboxError | null {
  const mount = governingMount(sandbox, path);
  if (mount === undefined) return new PathNotInSandboxError(path, readablePaths(sandbox));
  if (mount.mode !== "rw") return new PathNotWritableError(path, writablePaths(sandbox));
  return checkConstraints(mount, path, facts);
}

function enclosing(mounts: readonly Mount[], mount: Mount): Mount | undefined {
  return governingMount({ mounts: mounts.filter((other) => other.path !== mount.path) }, mount.path);
}

function checkConstraints(mount: Mount, path: VirtualPath, { size, directory }: FileFacts): SandboxError | null {
  if (directory) return null;
  const name = posix.basename(path).toLowerCase();
  if (mount.suffixes !== undefined && !mount.suffixes.some((suffix) => name.endsWith(suffix))) {
    return new SuffixNotAllowedError(path, mount.suffixes);
  }
  if (mount.maxFileBytes !== undefined && size !== undefined && size > mount.maxFileBytes) {
    return new FileTooLargeError(path, size, mount.maxFileBytes);
  }
  return null;
}
