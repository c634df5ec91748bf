import { parseTarget } from "../sandbox/network/network.ts";
import type { AllowedNetwork, NetworkRule } from "../sandbox/network/rule.ts";

/** The rules for this host and port, in their order. */
export function rulesFor({ allow }: AllowedNetwork, host: string, port: number): readonly NetworkRule[] {
  return allow.filter(({ to }) => {
    const parsed = parseTarget(to);
    if (!parsed.ok) return false;
    const { target } = parsed;
    if (target.port !== null && target.port !== port) return false;
    return target.wildcard ? host.endsWith(`.${target.host}`) : host === target.host;
  });
}
