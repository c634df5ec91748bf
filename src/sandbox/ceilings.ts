import { type Narrowed, whoTook, whoTookLimit, whoTookPolicy } from "./ancestry.ts";
import { type LimitName, type Limits, limitExcesses, meetLimits } from "./limits.ts";
import type { Needs } from "./needs.ts";
import type { NetworkExcess } from "./network/excess.ts";
import { askedBy, meetNetwork, networkExcesses } from "./network/network.ts";
import type { Network } from "./network/rule.ts";
import { type Policy, policyWeaknesses, withinPolicy } from "./policy.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Violation } from "./violation.ts";

/** Network, limits and policy. Each is at most the caller's, even if a violation is reported. */
export interface Ceilings {
  readonly network: Network;
  readonly limits: Limits;
  readonly policy: Policy;
  readonly violations: readonly Violation[];
}

/** A declaration as far as a policy allows it, with what exceeds the policy. */
export function withinCeilings(asked: Asked, policy: Policy): Ceilings {
  const by = `policy ${policy.name}`;
  const exceeding = networkExcesses(asked.network, policy.network, "policy");
  return {
    network: meetNetwork(asked.network, policy.network, "policy"),
    limits: meetLimits(asked.limits, policy.maxLimits),
    policy,
    violations: [
      ...networkViolations(asked.network, policy.network, exceeding, () => by),
      ...limitViolations(asked.limits, policy.maxLimits, () => by),
    ],
  };
}

/** A call's network, limits and policy: the meet of what it asks, what its caller has, and what its own policy allows. */
export function deriveCeilings(parent: Sandbox, needs: Needs): Ceilings {
  const policy = needs.policy === undefined ? parent.policy : withinPolicy(needs.policy, parent.policy);
  const asked = { network: needs.network ?? false, limits: needs.limits ?? {} };
  // The policy is asked only for what the caller has: the rest is a violation already.
  const own = withinCeilings({ ...asked, network: meetNetwork(asked.network, parent.network) }, policy);
  const exceeding = networkExcesses(asked.network, parent.network);
  return {
    network: own.network,
    limits: meetLimits(parent.limits, own.limits),
    policy,
    violations: [
      ...networkViolations(asked.network, parent.network, exceeding, (excess) => whoTookNetwork(parent, excess)),
      ...limitViolations(asked.limits, parent.limits, (limit) => whoTookLimit(parent, limit)),
      ...(needs.policy === undefined ? [] : own.violations),
      ...weaknesses(parent, needs.policy),
    ],
  };
}

interface Asked {
  readonly network: Network;
  readonly limits: Limits;
}

/** One for each ancestor. */
function networkViolations(
  asked: Network,
  has: Network,
  all: readonly NetworkExcess[],
  by: (excess: NetworkExcess) => string,
): Violation[] {
  const names = [...new Set(all.map(by))];
  return names.map((name) => {
    const exceeding = all.filter((excess) => by(excess) === name);
    return { code: "NETWORK_NOT_AVAILABLE", asked, has, exceeding, by: name };
  });
}

/** Who took one thing of a network away: until then it was there. */
function whoTookNetwork(sandbox: Narrowed, excess: NetworkExcess): string {
  const asked = askedBy(excess);
  const has = (network: Network): boolean => networkExcesses(asked, network).length === 0;
  return whoTook(sandbox, (n) => n.kind === "network" && has(n.from) && !has(n.to));
}

function limitViolations(asked: Limits, has: Limits, by: (limit: LimitName) => string): Violation[] {
  return limitExcesses(asked, has).map((excess) => ({ code: "LIMIT_TOO_LARGE", ...excess, by: by(excess.limit) }));
}

function weaknesses(parent: Sandbox, asked: Policy | undefined): Violation[] {
  const lines = asked === undefined ? [] : policyWeaknesses(asked, parent.policy);
  if (asked === undefined || lines.length === 0) return [];
  return [{ code: "POLICY_WEAKER", asked: asked.name, has: parent.policy.name, lines, by: whoTookPolicy(parent) }];
}
