import type { Approval } from "./approval.ts";
import type { Limits } from "./limits.ts";
import type { Mode } from "./mount.ts";
import type { Network } from "./network/rule.ts";
import type { Policy } from "./policy.ts";
import type { VirtualPath } from "./virtual-path.ts";

/**
 * What a worker declares, resolved: paths are virtual and normalised, an entry that was a file is already
 * replaced by its directory, host roots are absolute and contain no link, the policy's name is replaced by the policy.
 *
 * Exactly one way of asking for files: nothing, `zones`, `paths`, or the allowlists with or without `inherit`.
 */
export interface Needs {
  readonly zones?: readonly ZoneNeed[];
  readonly paths?: readonly PathNeed[];
  readonly inherit?: boolean;
  /** Absent: not declared. An empty list: nothing is allowed. */
  readonly allowRead?: readonly VirtualPath[];
  readonly allowWrite?: readonly VirtualPath[];
  readonly readonly?: boolean;
  /** For every mount of this worker that has none of its own. */
  readonly approval?: Approval;
  /** For every mount of this worker: see {@link Mount.stage} and {@link Mount.discard}. */
  readonly stage?: true;
  readonly discard?: true;
  readonly workingDir?: VirtualPath;
  /** Absent: none. */
  readonly network?: Network;
  /** Names of secrets that it needs inside of its cell. Absent: none. */
  readonly secrets?: readonly string[];
  /** Absent, whole or in part: the caller's. */
  readonly limits?: Limits;
  /** Absent: the caller's. */
  readonly policy?: Policy;
}

/** A mount of the project, by name. `mode` absent: `ro`. */
export interface ZoneNeed {
  readonly name: string;
  readonly mode?: Mode;
  readonly approval?: Approval;
  readonly stage?: true;
  readonly discard?: true;
}

/** A host directory that the worker itself names; as a call, only if it is inside of the caller's mounts. */
export interface PathNeed {
  readonly name: string;
  /** Its place in the namespace; absent: `/NAME`. */
  readonly at?: VirtualPath;
  /** Absolute host path with no symbolic link in it. */
  readonly host: string;
  readonly mode: Mode;
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: Approval;
  readonly stage?: true;
  readonly discard?: true;
}
