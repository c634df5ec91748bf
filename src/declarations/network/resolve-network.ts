import type { Network } from "../../sandbox/network/rule.ts";
import type { KeyPath } from "../yaml/document.ts";
import type { RawAllowList, RawNetwork } from "./raw-network.ts";

export interface NetworkContext {
  readonly projectDir: string;
}

/** What is wrong with one line of a network, at its place below `network`. */
export interface NetworkFault {
  readonly at: KeyPath;
  readonly fault: string;
}

export type NetworkResolution =
  | { readonly ok: true; readonly network: Network }
  | { readonly ok: false; readonly faults: readonly NetworkFault[] };

/** The I/O step between a declared network and its rules. Reports all faults together. */
export async function resolveNetwork(raw: RawNetwork, _context: NetworkContext): Promise<NetworkResolution> {
  if (typeof raw === "boolean") return { ok: true, network: raw };
  const { allow, limits, dynamic } = raw;
  const faults = unsupported(raw);
  return faults.length > 0
    ? { ok: false, faults }
    : { ok: true, network: { allow, ...(limits && { limits }), ...(dynamic && { dynamic }) } };
}

function unsupported(raw: RawAllowList): NetworkFault[] {
  return (["packages", "lockfiles"] as const)
    .filter((key) => (raw[key]?.length ?? 0) > 0)
    .map((key) => ({ at: [key], fault: "is not supported by this version; name the hosts in `allow`" }));
}
