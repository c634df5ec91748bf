import type { Network } from "../../sandbox/network/rule.ts";
import type { KeyPath } from "../yaml/document.ts";
import { packageRules } from "./package-rules.ts";
import type { RawNetwork } from "./raw-network.ts";
import type { RegistryMap } from "./registries/read-registries.ts";
import { placeFaults } from "./rule-terms.ts";

export interface NetworkContext {
  readonly projectDir: string;
  /** Those of the presets that the network uses. */
  readonly registries: RegistryMap;
}

/** What is wrong with one line of a network, at its place below `network`. */
export interface NetworkFault {
  readonly at: KeyPath;
  readonly fault: string;
}

export type NetworkResolution =
  | { readonly ok: true; readonly network: Network }
  | { readonly ok: false; readonly faults: readonly NetworkFault[] };

/** What a network that consists of presets and lock files alone may send: enough for the requests of some 7,000 files. */
const PRESET_UPLOAD_BYTES = 4 * 1024 * 1024;

/** The I/O step between a declared network and its rules. Reports all faults together. */
export async function resolveNetwork(raw: RawNetwork, context: NetworkContext): Promise<NetworkResolution> {
  if (typeof raw === "boolean") return { ok: true, network: raw };
  const { allow, limits, dynamic } = raw;
  const { rules, faults } = await packageRules(raw, context);
  if (faults.length > 0)
    return { ok: false, faults: faults.map(({ in: part, index, fault }) => ({ at: [part, index], fault })) };
  // Among the rules as written the shape was judged already; a registry may be where one of them, or another registry, is.
  const clashes = placeFaults([...allow, ...rules]).filter(({ index }) => index >= allow.length);
  const at: KeyPath = [raw.packages === undefined ? "lockfiles" : "packages"];
  if (clashes.length > 0) return { ok: false, faults: clashes.map(({ fault }) => ({ at, fault })) };
  const usual = allow.length === 0 && rules.length > 0 ? { uploadBytes: PRESET_UPLOAD_BYTES } : undefined;
  const bounded = usual || limits ? { limits: { ...usual, ...limits } } : {};
  return { ok: true, network: { allow: [...allow, ...rules], ...bounded, ...(dynamic && { dynamic }) } };
}
