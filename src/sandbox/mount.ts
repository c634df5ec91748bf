import type { ApprovalRules } from "./approval.ts";
import { comparePaths, type VirtualPath } from "./virtual-path.ts";

/** What a mount can do: `ro` reads, `rw` reads and writes. Consent is apart, see {@link ApprovalRules}. */
export type Mode = "ro" | "rw";

/** What a path allows: `none < read < write`; write implies read. */
export type Access = "none" | "read" | "write";

/**
 * A host directory, or a single file, exposed at a virtual path.
 *
 * The longest mount prefix governs a path, so a list of mounts can express "read /src, write /src/out" but never
 * a hole. Constraints travel with the mount through every derivation.
 */
export interface Mount {
  /** The name in the project (`data`), or `/` for the root form. A mount carved out of another keeps its name. */
  readonly name: string;
  /** Its path in the virtual namespace: `/data`, `/data/sub`, or `/` for the root form. */
  readonly path: VirtualPath;
  /** Absolute host path with no symbolic link in it. Never shown to a worker. */
  readonly host: string;
  readonly mode: Mode;
  /** Allowed file suffixes with their dot, lower case, sorted; absent: every suffix. */
  readonly suffixes?: readonly string[];
  /** The largest file that may be read or written, in bytes; absent: no limit. */
  readonly maxFileBytes?: number;
  /** Absent only in a project's own sandbox, if the project does not set it: then the worker may set it; the default is `ask`. */
  readonly approval?: ApprovalRules;
  /** Only in a project's own sandbox: a running worker may be granted writing there, although the mode is `ro`. */
  readonly grantable?: true;
  /** Writes are kept apart and become a changeset, even if no consent is needed. A derivation never removes it. */
  readonly stage?: true;
  /** Writes are kept apart and dropped. A derivation never removes it. */
  readonly discard?: true;
  /**
   * A directory that a worker itself named, by its own name. `inside`: its caller gave it; `brought`: the project does not give
   * it, but lets workers bring their own.
   */
  readonly own?: "inside" | "brought";
  /** The id of the grant at run time that opened it; what is derived from it keeps the mark, so that it can be taken back. */
  readonly granted?: string;
  /** Present if `host` is a view of another directory. A run's changes stay in the view until they are applied. */
  readonly view?: MountView;
}

/** The directory behind a view. */
export interface MountView {
  /** The host directory that is seen through it, as the project names it. Checks of the project's own files use this one. */
  readonly origin: string;
  /** The consent that is asked before a change in the view reaches that directory: calls from here need not ask again. */
  readonly asked: ApprovalRules;
}

/** The host directory that a mount shows, directly or through a view. */
export function originOf({ host, view }: Pick<Mount, "host" | "view">): string {
  return view?.origin ?? host;
}

/** `PDF` and `.pdf` are the same suffix. */
export function canonicalSuffixes(suffixes: readonly string[]): string[] {
  const dotted = suffixes.map((suffix) => (suffix.startsWith(".") ? suffix : `.${suffix}`).toLowerCase());
  return [...new Set(dotted)].sort(comparePaths);
}
