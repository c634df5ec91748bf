import type { DynamicNetwork, NetworkLimits, NetworkRule, PackageKind } from "../../sandbox/network/rule.ts";

/** A network as a file declares it: checked in form. `resolveNetwork` makes rules of its packages and lock files. */
export type RawNetwork = boolean | RawAllowList;

export interface RawAllowList extends PackageTerms {
  readonly allow: readonly NetworkRule[];
  readonly limits?: NetworkLimits;
  readonly dynamic?: DynamicNetwork;
}

/** One preset that a file names. */
export interface PackagePreset {
  readonly kind: PackageKind;
  /** The only addresses of its hosts that may be dialled, as in a rule. */
  readonly addresses?: readonly string[];
}

export interface PackageTerms {
  readonly packages?: readonly PackagePreset[];
  /** Paths of lock files, relative to the project. */
  readonly lockfiles?: readonly string[];
}
