import { posix } from "node:path";
import { isDiskFull } from "../../platform/errno.ts";
import { covers, joinVirtual, MAX_COMPONENT_BYTES, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { formatBytes } from "../../text/amounts.ts";
import {
  type Change,
  type ChangedMount,
  type ChangeOutcome,
  type Changeset,
  linkTextFault,
} from "../model/changeset.ts";

/** The outcome of a change and, if it was not applied, the reason: text for people, with virtual paths only. */
export interface ChangeVerdict {
  readonly outcome: ChangeOutcome;
  readonly reason: string | null;
}

/** A change with its outcome. */
export interface Settled extends ChangeVerdict {
  readonly change: Change;
}

export const APPLIED: ChangeVerdict = { outcome: "applied", reason: null };

export function refused(reason: string): ChangeVerdict {
  return { outcome: "refused", reason };
}

/** The target changed since the run began. It is never overwritten. */
export function conflict(reason: string): ChangeVerdict {
  return { outcome: "conflict", reason };
}

export function isVerdict(value: object): value is ChangeVerdict {
  return "outcome" in value;
}

/** The verdict for an error of the system. A full disk says nothing about a change; it and any bug are thrown again. */
export function impossible(error: unknown): ChangeVerdict {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined || isDiskFull(error)) throw error;
  return refused(WORDS.get(code) ?? `the system refused it (${code})`);
}

const WORDS: ReadonlyMap<string, string> = new Map([
  ["EACCES", "the user that Corral runs as may not change it"],
  ["EPERM", "the user that Corral runs as may not change it"],
  ["EROFS", "its file system is read-only"],
  ["EFBIG", "it is too large for its file system"],
  ["ENAMETOOLONG", "its name is too long"],
  ["EEXIST", "another process replaced its temporary file"],
  ["EINVAL", "its file system does not allow such a name"],
  ["EAGAIN", "another program holds it with a lease; try again after that program has closed it"],
  ["EMFILE", "too many files are open; try again"],
  ["ENFILE", "too many files are open; try again"],
]);

/** The deepest path that can be changed, counted from its mount. */
const MAX_DEPTH = 256;

/**
 * Why a change must not be applied; null if it may. The scan has checked most of this before, but the stored record may
 * have been tampered with since.
 */
export function fitness(
  changeset: Changeset,
  which: ReadonlySet<number>,
  limits: ApplyLimits,
): (change: Change) => string | null {
  const large = tooLargeChanges(changeset, which, limits);
  return (change) => {
    const mount = changeset.mounts[change.mount];
    return mount === undefined ? CONTRADICTION : (whyUnfit(change, mount) ?? large.get(change.index) ?? null);
  };
}

const CONTRADICTION = "its record is inconsistent";

function whyUnfit(change: Change, mount: ChangedMount): string | null {
  if (change.refusal !== null) return change.refusal;
  const { length } = change.parts;
  if (length === 0 || length > MAX_DEPTH || !change.parts.every(isName)) return "its path is not valid";
  const root = rootOf(change, mount);
  if (root === null) return CONTRADICTION;
  if (isClosed(change, mount.closed))
    return "it is in a directory that was granted separately, or one of the project's own files";
  const { type, next, linkText = "", parts } = change;
  return shapeFault(change) ?? (type === "link" && next !== null ? linkTextFault(linkText, parts.length - 1) : null);
}

/** The directory that the parts of a change are below: for a mount that is a single file, its parent. */
function rootOf({ path, parts }: Change, mount: ChangedMount): string | null {
  if (path === joinVirtual(mount.path, parts.join("/"))) return mount.path;
  return path === mount.path && parts.length === 1 ? posix.dirname(mount.path) : null;
}

function isName(part: string): boolean {
  if (part === "" || part === "." || part === ".." || /[/\0]/.test(part)) return false;
  return part.isWellFormed() && Buffer.byteLength(part) <= MAX_COMPONENT_BYTES;
}

/** Nothing in a closed path is changed, and a directory on the way to one is not deleted or replaced. */
function isClosed({ kind, type, path }: Change, closed: readonly VirtualPath[]): boolean {
  const staysFolder = type === "directory" && kind !== "delete";
  return closed.some((inner) => covers(inner, path) || (!staysFolder && covers(path, inner)));
}

function shapeFault({ kind, type, base, next }: Change): string | null {
  const sound =
    kind === "delete"
      ? base?.type === type && next === null
      : next?.type === type &&
        (kind === "create" || (base !== null && (base.type === "directory") === (type === "directory")));
  return sound ? null : CONTRADICTION;
}

/** The size limits of what is applied: of one file, and of all files. Holes count. */
export interface ApplyLimits {
  readonly fileBytes: number;
  readonly totalBytes: number;
}

/** The default limits. The scan has already checked each file against the limits of its own directory. */
export const DEFAULT_LIMITS: ApplyLimits = { fileBytes: 4 * 1024 ** 3, totalBytes: 16 * 1024 ** 3 };

/** Why a file is too large, by the index of its change. It is decided before anything is copied, and never changes. */
export function tooLargeChanges(
  { changes }: Pick<Changeset, "changes">,
  which: ReadonlySet<number>,
  { fileBytes, totalBytes }: ApplyLimits,
): ReadonlyMap<number, string> {
  const reasons = new Map<number, string>();
  let left = totalBytes;
  for (const { index, type, next, refusal } of changes) {
    if (!which.has(index) || refusal !== null || type !== "file" || next === null) continue;
    if (next.size > fileBytes)
      reasons.set(index, `it has ${formatBytes(next.size)}, and at most ${formatBytes(fileBytes)} are allowed`);
    else if (next.size > left)
      reasons.set(index, `with this change, more than ${formatBytes(totalBytes)} would be written`);
    else left -= next.size;
  }
  return reasons;
}
