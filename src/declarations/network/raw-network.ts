import type { DynamicNetwork, NetworkLimits, NetworkRule, PackageKind } from "../../sandbox/network/rule.ts";

/** A network as a file declares it: checked in form. `resolveNetwork` makes rules of its packages and lock files. */
export type RawNetwork = boolean | RawAllowList;

export interface RawAllowList {
  readonly allow: readonly NetworkRule[];
  /** Registries, as this machine is configured for them. Absent: none. */
  readonly packages?: readonly PackageKind[];
  /** Paths as written. Absent: none. */
  readonly lockfiles?: readonly string[];
  readonly limits?: NetworkLimits;
  readonly dynamic?: DynamicNetwork;
}
