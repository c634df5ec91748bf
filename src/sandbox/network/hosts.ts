import { meetNetwork, networkExcesses } from "./network.ts";
import { isAmong, isLookedInto, type Network, type NetworkRule, parseTarget } from "./rule.ts";

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

/**
 * The entry that has the place `http://NAME/` of a cell already, which one of these rules would take as well; null if there is none.
 */
export function takenPlace(network: Network, rules: readonly NetworkRule[]): string | null {
  const had = typeof network === "boolean" ? [] : network.allow.flatMap((rule) => plainPlaceOf(rule) ?? []);
  const places = rules.flatMap((rule) => plainPlaceOf(rule) ?? []);
  return had.find((one) => places.some(({ host, port }) => host === one.host && port !== one.port))?.to ?? null;
}

/** The name whose port 80 in the cell leads to this rule, and the port of the host that is meant. */
function plainPlaceOf(rule: NetworkRule) {
  const parsed = parseTarget(rule.to);
  if (!parsed.ok || parsed.target.wildcard) return null;
  const { host, port } = parsed.target;
  return port === 80 || (port === 443 && isLookedInto(rule)) ? { to: rule.to, host, port } : null;
}
