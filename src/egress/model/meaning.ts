import { rulesFor } from "../../sandbox/network/judge.ts";
import { type AllowedNetwork, isLookedInto, type NetworkRule } from "../../sandbox/network/rule.ts";
import type { Target } from "./outlet.ts";

/** What `http://HOST:PORT` in the cell means: port 80 of a host that is looked into is its port 443. */
export function targetInside(network: AllowedNetwork, inside: Target): Target {
  const https = { ...inside, port: 443 };
  const isLookedInto443 = lookedInto(network, https).some(({ tls }) => tls !== false);
  return inside.port === 80 && isLookedInto443 ? https : inside;
}

export function tunnels(network: AllowedNetwork, { host, port }: Target): readonly NetworkRule[] {
  return rulesFor(network, host, port).filter((rule) => !isLookedInto(rule));
}

export function lookedInto(network: AllowedNetwork, { host, port }: Target): readonly NetworkRule[] {
  return rulesFor(network, host, port).filter(isLookedInto);
}
