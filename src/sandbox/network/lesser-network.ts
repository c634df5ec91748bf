import type { AllowedNetwork, Network } from "./rule.ts";
import { meetTargets, type NetworkTarget, parseTarget, targetText } from "./target.ts";

export type LesserNetwork =
  | { readonly ok: true; readonly network: AllowedNetwork | false }
  /** One of the texts, and why. */
  | { readonly ok: false; readonly to: string; readonly reason: string };

/**
 * What of a network is left if only some hosts may be reached: each rule with all that it says, for those of its hosts.
 * A host that the network does not have is refused: a caller that believes to reach it would be wrong.
 */
export function lesserNetwork(network: Network, only: readonly string[]): LesserNetwork {
  if (network === true)
    return { ok: false, to: only[0] ?? "none", reason: "it has the whole network, and no list of hosts" };
  const rules =
    typeof network === "boolean" ? [] : network.allow.map((rule) => ({ rule, parsed: parseTarget(rule.to) }));
  const left = new Map<string, AllowedNetwork["allow"][number]>();
  for (const text of only) {
    const asked = parseTarget(text);
    if (!asked.ok) return { ok: false, to: text, reason: asked.reason };
    const met = rules.flatMap(({ rule, parsed }) => {
      const both: NetworkTarget | null = parsed.ok ? meetTargets(asked.target, parsed.target) : null;
      return both === null ? [] : [{ ...rule, to: targetText(both) }];
    });
    if (met.length === 0) return { ok: false, to: text, reason: "it is not one of the hosts that are allowed" };
    for (const rule of met) left.set(JSON.stringify(rule), rule);
  }
  if (typeof network === "boolean" || left.size === 0) return { ok: true, network: false };
  const { dynamic: _, ...rest } = network;
  return { ok: true, network: { ...rest, allow: [...left.values()] } };
}
