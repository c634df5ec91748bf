import type { Approval } from "./approval.ts";
import { comparePaths, type VirtualPath } from "./virtual-path.ts";

/** What a mount can do: `ro` reads, `rw` reads and writes. Consent is apart, see {@link Approval}. */
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
  /** Where it stands in the virtual namespace: `/data`, `/data/sub`, or `/` for the root form. */
  readonly path: VirtualPath;
  /** Absolute host path with no symbolic link in it. Never shown to a worker. */
  readonly host: string;
  readonly mode: Mode;
  /** Allowed file suffixes with their dot, lower case, sorted; absent: every suffix. */
  readonly suffixes?: readonly string[];
  /** The largest file that may be read or written, in bytes; absent: no limit. */
  readonly maxFileBytes?: number;
  /** Absent only in a project's own sandbox, where the project does not say: the worker may then say, or gets `ask`. */
  readonly approval?: Approval;
  /** Writes go to a side, and come back as a changeset, also where nobody has to be asked. Never taken back by a derivation. */
  readonly stage?: true;
  /** Writes go to a side, and never come back. Never taken back by a derivation. */
  readonly discard?: true;
  /** The id of the grant at run time that opened it; what is derived from it keeps the mark, so that it can be taken back. */
  readonly granted?: string;
  /** Present where `host` is a view of another directory, in which a run's changes wait. */
  readonly view?: MountView;
}

/** What a view stands for. */
export interface MountView {
  /** The host directory that is seen through it: what a project names, and what its own files are compared with. */
  readonly origin: string;
  /** What will be asked before a change in the view reaches that directory: who calls from here need not ask it again. */
  readonly asked: Approval;
}

/** The host directory that a mount shows, whether or not through a view. */
export function originOf({ host, view }: Pick<Mount, "host" | "view">): string {
  return view?.origin ?? host;
}

/** `PDF` and `.pdf` are the same suffix. */
export function canonicalSuffixes(suffixes: readonly string[]): string[] {
  const dotted = suffixes.map((suffix) => (suffix.startsWith(".") ? suffix : `.${suffix}`).toLowerCase());
  return [...new Set(dotted)].sort(comparePaths);
}
