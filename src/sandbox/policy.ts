import type { Limits } from "./limits.ts";
import type { Network } from "./network.ts";

/** A named seccomp profile, from the loosest to the strictest. `engine` is the Engine's own; `corral` is tighter. */
export type SeccompProfile = "engine" | "corral";

/** The lines of a policy that harden a cell. A weaker line than the caller's is a violation. */
export interface Hardening {
  /** May a worker be user 0 in its cell? */
  readonly rootUser: boolean;
  readonly readOnlyRoot: boolean;
  readonly noNewPrivileges: boolean;
  /** Capabilities kept (`CAP_…`), sorted. Empty: every one is dropped. */
  readonly capabilities: readonly string[];
  readonly seccomp: SeccompProfile;
  /** May files in the cell's `/tmp` and home be executed? */
  readonly tmpExec: boolean;
  /** The Engine runtime, e.g. `runsc`; absent: the Engine's default. Any named runtime counts as stricter than the default, and two names as incomparable. */
  readonly runtime?: string;
}

/** A hardening profile and its ceilings, parsed from `policies/*.yaml` (design section 6). Pure data. */
export interface Policy {
  readonly name: string;
  readonly description: string;
  readonly hardening: Hardening;
  /** The most a run under this policy may have. */
  readonly network: Network;
  readonly maxLimits: Required<Limits>;
  /** What a root run gets where neither worker nor project says. Each at most the ceiling. */
  readonly defaultLimits: Required<Limits>;
  /** Sizes of the cell's `/tmp` and home, in bytes. */
  readonly tmpBytes: number;
  readonly homeBytes: number;
  /** Open files per process. */
  readonly nofile: number;
}
