import type { NetworkLimits, NetworkRule } from "./rule.ts";

/** In which term a rule asks for more: in the order in which they are compared. `tunnel`: its requests are looked into. */
export const NETWORK_TERMS = ["to", "tunnel", "tls", "methods", "paths", "artifacts", "addresses", "set"] as const;
export type NetworkTerm = (typeof NETWORK_TERMS)[number];

/** One thing in which a network asks for more than there is. */
export type NetworkExcess =
  /** `network: true`. */
  | { readonly kind: "all" }
  | { readonly kind: "rule"; readonly rule: NetworkRule; readonly term: NetworkTerm }
  | { readonly kind: "limit"; readonly limit: keyof NetworkLimits; readonly asked: number; readonly has: number }
  /** A host that a running worker may ask for. */
  | { readonly kind: "dynamic"; readonly within: string }
  | { readonly kind: "dynamicMax"; readonly asked: number; readonly has: number };
