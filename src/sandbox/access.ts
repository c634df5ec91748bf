import posix from "node:path/posix";
import { type ChangeOperation, type Consent, consentOf, OPERATIONS } from "./approval.ts";
import {
  FileTooLargeError,
  PathNotInSandboxError,
  PathNotWritableError,
  PermissionError,
  type SandboxError,
  SuffixNotAllowedError,
} from "./errors.ts";
import type { Access, Mount } from "./mount.ts";
import {
  below,
  comparePaths,
  covers,
  joinVirtual,
  type PathParse,
  parseVirtualPath,
  ROOT,
  ROOTED_BASE,
  type VirtualPath,
} from "./virtual-path.ts";

/** All that access depends on: a sandbox, or one that is being derived. */
interface Mounted {
  readonly mounts: readonly Mount[];
}

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

/** True if reading is allowed there: mode, suffix and, if given, size. */
export function canRead(sandbox: Mounted, path: VirtualPath, facts: FileFacts = {}): boolean {
  return checkRead(sandbox, path, facts) === null;
}

/** True if writing is allowed there, possibly after a question: mode, suffix, size, and not `blocked`. */
export function canWrite(sandbox: Mounted, path: VirtualPath, facts: FileFacts = {}): boolean {
  return checkWrite(sandbox, path, facts) === null && checkConsent(sandbox, path, "write") === null;
}

/** True if there is a directory at `path`: in a mount, or above one; `/` always exists. */
export function isShown({ mounts }: Mounted, path: VirtualPath): boolean {
  if (path === ROOT || governingMount({ mounts }, path) !== undefined) return true;
  return mounts.some((mount) => covers(path, mount.path));
}

/** The host path of `path`, or null if it is in no mount. Never show it to a worker. */
export function hostPathOf(sandbox: Mounted, path: VirtualPath): string | null {
  const mount = governingMount(sandbox, path);
  return mount === undefined ? null : hostBelow(mount, path);
}

/** The host path of `path`, which is at or below the mount. */
export function hostBelow(mount: Mount, path: VirtualPath): string {
  return posix.join(mount.host, below(mount.path, path) ?? "");
}

/**
 * The mounts at and below `prefix`: the governing one, carved to it, and all that are strictly below. Every way to ask for
 * files uses this one operation. The mounts below are always included, because each hides a part of the one above it.
 */
export function select(sandbox: Mounted, prefix: VirtualPath): Mount[] {
  const governing = governingMount(sandbox, prefix);
  const inside = sandbox.mounts.filter((mount) => mount.path !== prefix && covers(prefix, mount.path));
  return governing === undefined ? inside : [carve(governing, prefix), ...inside];
}

/** The same place of the host, seen from further down; the name and every constraint stay. */
export function carve(mount: Mount, path: VirtualPath): Mount {
  const { view } = mount;
  const carved = { ...mount, path, host: hostBelow(mount, path) };
  return view === undefined
    ? carved
    : { ...carved, view: { ...view, origin: hostBelow({ ...mount, host: view.origin }, path) } };
}

/** Sorted by path, none twice, and none that changes nothing compared with the one above it. */
export function canonicalMounts(mounts: readonly Mount[]): Mount[] {
  const kept: Mount[] = [];
  for (const mount of [...mounts].sort((a, b) => comparePaths(a.path, b.path))) {
    const above = governingMount({ mounts: kept }, mount.path);
    if (above === undefined || (above.path !== mount.path && !isContinuation(above, mount))) kept.push(mount);
  }
  return kept;
}

/** With the root form, commands see `/a` at `/project/a`: an absolute path may be written either way. */
function fromRooted(path: VirtualPath): VirtualPath {
  const rest = below(ROOTED_BASE, path);
  return rest === null ? path : joinVirtual(ROOT, rest);
}

/** Reads a worker's text for a path as its own sandbox means it: its working directory, its mounts' names, its home. */
export function parsePathIn(
  sandbox: Mounted & { readonly workingDir: VirtualPath; readonly rooted?: boolean },
  raw: string,
): PathParse {
  const mountNames = namesBeforeColon(sandbox.mounts);
  // Where only a part of it is seen, a cell's home is in memory: `~` must not mean one thing to tools and another to commands.
  const home = sandbox.mounts.find(({ name, path }) => name === "home" && path === "/home");
  const parsed = parseVirtualPath(raw, {
    workingDir: sandbox.workingDir,
    mountNames,
    ...(home && { home: home.path }),
  });
  return parsed.ok && sandbox.rooted && raw.startsWith("/") ? { ok: true, path: fromRooted(parsed.path) } : parsed;
}

/** The names that may precede a colon: `data:a.md` is `/data/a.md`, so a mount at another place has no such form. */
export function namesBeforeColon(mounts: readonly Mount[]): string[] {
  const named = mounts.filter(({ name, path }) => covers(`/${name}` as VirtualPath, path));
  return [...new Set(named.map(({ name }) => name))];
}

/** The topmost paths that can be read, for messages. */
export function readablePaths({ mounts }: Mounted): VirtualPath[] {
  return mounts.filter((mount) => enclosing(mounts, mount) === undefined).map((mount) => mount.path);
}

/** The topmost paths that can be written, for messages. Where no approval can allow it, nothing is. */
export function writablePaths({ mounts }: Mounted): VirtualPath[] {
  const writable = mounts.filter((mount) => isWritten(mount) && !isWritten(enclosing(mounts, mount)));
  return writable.map((mount) => mount.path);
}

/** True if a file of it can be written, perhaps after a question. */
export function isWritten(mount: Pick<Mount, "mode" | "approval"> | undefined): boolean {
  return mount?.mode === "rw" && consentOf(mount.approval, "write") !== "blocked";
}

/** The names by which a sandbox's mounts can be asked for. */
export function mountNames({ mounts }: Mounted): string[] {
  return [...new Set(mounts.map((mount) => mount.name))].sort(comparePaths);
}

/** Why `path` may not be read, or null. */
export function checkRead(sandbox: Mounted, path: VirtualPath, facts: FileFacts = {}): SandboxError | null {
  const mount = governingMount(sandbox, path);
  if (mount === undefined) return new PathNotInSandboxError(path, readablePaths(sandbox));
  return checkConstraints(mount, path, facts);
}

/** Who has to agree to a change. A mount that declares no consent asks for everything. */
export function consentTo(sandbox: Mounted, path: VirtualPath, operation: ChangeOperation): Consent {
  return consentOf(governingMount(sandbox, path)?.approval, operation);
}

/** Why no consent allows `path` to be changed. Null: it may be changed, perhaps after a question. */
export function checkConsent(sandbox: Mounted, path: VirtualPath, operation: ChangeOperation): SandboxError | null {
  if (consentTo(sandbox, path, operation) !== "blocked") return null;
  const what = operation === "write" ? "writing" : "deleting";
  const open = sandbox.mounts.filter(
    ({ mode, approval }) => mode === "rw" && consentOf(approval, operation) !== "blocked",
  );
  const allowed = open.length === 0 ? "none" : open.map((mount) => mount.path).join(", ");
  const where = `Paths where ${what} is not blocked: ${allowed}`;
  return new PermissionError(path, operation, `${what} is blocked there, and no approval can allow it.\n${where}`);
}

/** Why `path` may not be written, or null. It does not check consent. */
export function checkWrite(sandbox: Mounted, path: VirtualPath, facts: FileFacts = {}): SandboxError | null {
  const mount = governingMount(sandbox, path);
  if (mount === undefined)
    return new PathNotInSandboxError(path, readablePaths(sandbox), undefined, writablePaths(sandbox));
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

function isContinuation(above: Mount, mount: Mount): boolean {
  return (
    mount.host === hostBelow(above, mount.path) &&
    mount.name === above.name &&
    mount.mode === above.mode &&
    mount.maxFileBytes === above.maxFileBytes &&
    mount.stage === above.stage &&
    mount.discard === above.discard &&
    mount.granted === above.granted &&
    mount.grantable === above.grantable &&
    mount.own === above.own &&
    mount.suffixes?.join("/") === above.suffixes?.join("/") &&
    OPERATIONS.every((operation) => mount.approval?.[operation] === above.approval?.[operation])
  );
}
