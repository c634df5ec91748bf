import { canonicalNetwork } from "./network/network.ts";
import type { NetworkRule } from "./network/rule.ts";
import type { Sandbox } from "./sandbox.ts";

/** A host of the network that was granted to a running worker, with what its source gives of it. */
export interface HostGrant {
  readonly id: string;
  /** `host:port`, canonical, without a wildcard. */
  readonly to: string;
  /** Who agreed to it, for `explain`. */
  readonly by: string;
  /** For exactly this host and port. Nothing beyond these is granted. */
  readonly rules: readonly NetworkRule[];
}

/** A new sandbox that reaches one more host; nothing else differs. Pure. */
export function expandNetwork(sandbox: Sandbox, { to, by, rules }: HostGrant): Sandbox {
  const { network, narrowings } = sandbox;
  if (network === true) return sandbox;
  const had = network === false ? { allow: [] } : network;
  const wider = canonicalNetwork({ allow: [...had.allow, ...rules] });
  const allow = typeof wider === "boolean" ? [] : wider.allow;
  if (JSON.stringify(allow) === JSON.stringify(had.allow)) return sandbox;
  return { ...sandbox, network: { ...had, allow }, narrowings: [...narrowings, { by, kind: "grant_network", to }] };
}
