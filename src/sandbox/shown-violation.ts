import type { NetworkExcess } from "./network/excess.ts";
import { type ShownNetwork, type ShownRule, shownNetwork, shownRule } from "./network/shown-rule.ts";
import type { Violation } from "./violation.ts";

type OfNetwork = Extract<Violation, { readonly code: "NETWORK_NOT_AVAILABLE" }>;
type OfRule = Extract<NetworkExcess, { readonly kind: "rule" }>;

type ShownExcess = Exclude<NetworkExcess, OfRule> | (Omit<OfRule, "rule"> & { readonly rule: ShownRule });

/** A violation as people and records see it: files of lock files as a number. */
export type ShownViolation =
  | Exclude<Violation, OfNetwork>
  | (Omit<OfNetwork, "asked" | "has" | "exceeding"> & {
      readonly asked: ShownNetwork;
      readonly has: ShownNetwork;
      readonly exceeding: readonly ShownExcess[];
    });

export function shownViolation(violation: Violation): ShownViolation {
  if (violation.code !== "NETWORK_NOT_AVAILABLE") return violation;
  const { asked, has, exceeding } = violation;
  return { ...violation, asked: shownNetwork(asked), has: shownNetwork(has), exceeding: exceeding.map(shownExcess) };
}

function shownExcess(excess: NetworkExcess): ShownExcess {
  return excess.kind === "rule" ? { ...excess, rule: shownRule(excess.rule) } : excess;
}
