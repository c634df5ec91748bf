import { meetNetwork, networkExcesses } from "./network.ts";
import type { Network, NetworkRule } from "./rule.ts";
import { isAmong } from "./target.ts";

/** True if the network reaches this host and port, within whatever bounds. */
export function reachesHost(network: Network, to: string): boolean {
  if (typeof network === "boolean") return network;
  return isAmong(
    to,
    network.allow.map((rule) => rule.to),
  );
}

/** What a network has to give of one host and port: within its bounds, and without its secrets. */
export function rulesToGrant(network: Network, to: string): readonly NetworkRule[] {
  const met = meetNetwork({ allow: [{ to }] }, network);
  return typeof met === "boolean" ? [] : met.allow;
}

/** The rules that `above` allows as well, just as they are. */
export function rulesWithin(rules: readonly NetworkRule[], above: Network): readonly NetworkRule[] {
  if (above === true) return rules;
  return rules.filter((rule) => networkExcesses({ allow: [rule] }, above, "itself").length === 0);
}

/** A network without the rules that `above` does not allow any more. Never more than it was. */
export function networkWithin(network: Network, above: Network): Network {
  if (network === false || above === true) return network;
  if (network === true) return above;
  const allow = rulesWithin(network.allow, above);
  if (allow.length === network.allow.length) return network;
  return allow.length === 0 && network.dynamic === undefined ? false : { ...network, allow };
}
