import type { AllowedNetwork, Network, NetworkRule } from "./rule.ts";

/** A rule as people, workers and records see it: secrets by their names, as always, and files of lock files as a number. */
export type ShownRule = Omit<NetworkRule, "artifacts" | "packages"> & {
  /** The kind of its preset. */
  readonly packages?: string;
  /** How many files it allows; absent: no such bound. */
  readonly artifacts?: number;
};

export function shownRule({ artifacts, packages, ...rule }: NetworkRule): ShownRule {
  return {
    ...rule,
    ...(packages === undefined ? {} : { packages: packages.kind }),
    ...(artifacts === undefined ? {} : { artifacts: artifacts.length }),
  };
}

/** A network as people, workers and records see it. */
export type ShownNetwork = boolean | (Omit<AllowedNetwork, "allow"> & { readonly allow: readonly ShownRule[] });

export function shownNetwork(network: Network): ShownNetwork {
  return typeof network === "boolean" ? network : { ...network, allow: network.allow.map(shownRule) };
}
