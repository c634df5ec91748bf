import { lesserNetwork } from "./network/lesser-network.ts";
import type { Sandbox } from "./sandbox.ts";

/** The sandbox of a command that was given only some hosts of its run's network. A host that was revoked since is none of them. */
export function commandSandbox(sandbox: Sandbox, only: readonly string[]): Sandbox {
  const { chain, narrowings, network: from } = sandbox;
  const lesser = lesserNetwork(from, only);
  const network = lesser.ok && lesser.network;
  if (JSON.stringify(from) === JSON.stringify(network)) return sandbox;
  const taken = { by: `${chain.at(-1)} (exec)`, kind: "network", from, to: network } as const;
  return { ...sandbox, network, narrowings: [...narrowings, taken] };
}
