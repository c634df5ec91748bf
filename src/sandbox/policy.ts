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

/** A hardening profile and its ceilings, parsed from `policies/*.yaml`. Pure data. */
export interface Policy {
  readonly name: string;
  readonly description: string;
  readonly hardening: Hardening;
  /** The most a run under this policy may have. */
  readonly network: Network;
  readonly maxLimits: Required<Limits>;
  /** What a root run gets where neither worker nor project says. Each at most the ceiling. */
  readonly defaultLimits: Required<Limits>;
  /** Whether one cell may serve many items of a fleet, scrubbed in between; `fresh`: each item has its own. */
  readonly reuse: "fresh" | "scrubbed";
  /** Sizes of the cell's `/tmp` and home, in bytes. */
  readonly tmpBytes: number;
  readonly homeBytes: number;
  /** Open files per process. */
  readonly nofile: number;
}

const SECCOMP_STRICTNESS: Readonly<Record<SeccompProfile, number>> = { engine: 0, corral: 1 };

/**
 * The hardening lines in which `asked` is weaker than `has`; what cannot be compared counts as weaker.
 * Ceilings of limits and network are not compared: they are met in the effective sandbox.
 */
export function policyWeaknesses(asked: Policy, has: Policy): (keyof Hardening)[] {
  const [a, h] = [asked.hardening, has.hardening];
  const weaker: Record<keyof Hardening, boolean> = {
    rootUser: a.rootUser && !h.rootUser,
    readOnlyRoot: !a.readOnlyRoot && h.readOnlyRoot,
    noNewPrivileges: !a.noNewPrivileges && h.noNewPrivileges,
    capabilities: a.capabilities.some((capability) => !h.capabilities.includes(capability)),
    seccomp: SECCOMP_STRICTNESS[a.seccomp] < SECCOMP_STRICTNESS[h.seccomp],
    tmpExec: a.tmpExec && !h.tmpExec,
    runtime: h.runtime !== undefined && a.runtime !== h.runtime,
  };
  return (Object.keys(weaker) as (keyof Hardening)[]).filter((line) => weaker[line]);
}

/** `asked` with the sizes that no limit covers at most the caller's, so that a change of policy cannot enlarge them. */
export function withinPolicy(asked: Policy, has: Policy): Policy {
  return {
    ...asked,
    tmpBytes: Math.min(asked.tmpBytes, has.tmpBytes),
    homeBytes: Math.min(asked.homeBytes, has.homeBytes),
    nofile: Math.min(asked.nofile, has.nofile),
  };
}
