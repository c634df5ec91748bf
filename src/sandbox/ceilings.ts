import { whoTookLimit, whoTookNetwork, whoTookPolicy } from "./ancestry.ts";
import { type Limits, limitExcesses, meetLimits } from "./limits.ts";
import type { Needs } from "./needs.ts";
import { meetNetwork, networkExcesses } from "./network/network.ts";
import type { Network } from "./network/rule.ts";
import type { Ceiling } from "./network/rule-bounds.ts";
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

/** A declaration held against a policy's ceilings: a project's own, or a call's that names another policy. */
export function withinCeilings(asked: { network: Network; limits: Limits }, policy: Policy): Ceilings {
  const by = `policy ${policy.name}`;
  return {
    network: meetNetwork(asked.network, policy.network, "policy"),
    limits: meetLimits(asked.limits, policy.maxLimits),
    policy,
    violations: excesses(
      asked,
      { network: policy.network, limits: policy.maxLimits },
      { network: by, limit: () => by },
      "policy",
    ),
  };
}

/** A call's network, limits and policy: the meet of what it asks, what its caller has, and what its own policy allows. */
export function deriveCeilings(parent: Sandbox, needs: Needs): Ceilings {
  const policy = needs.policy === undefined ? parent.policy : withinPolicy(needs.policy, parent.policy);
  const asked = { network: needs.network ?? false, limits: needs.limits ?? {} };
  const own = needs.policy === undefined ? [] : withinCeilings(asked, policy).violations;
  const by = { network: whoTookNetwork(parent), limit: (limit: keyof Limits) => whoTookLimit(parent, limit) };
  return {
    network: meetNetwork(meetNetwork(asked.network, parent.network), policy.network, "policy"),
    limits: [parent.limits, policy.maxLimits].reduce(meetLimits, asked.limits),
    policy,
    violations: [...excesses(asked, parent, by), ...own, ...weaknesses(parent, needs.policy)],
  };
}

function excesses(
  asked: { network: Network; limits: Limits },
  has: { network: Network; limits: Limits },
  by: { network: string; limit: (limit: keyof Limits) => string },
  ceiling: Ceiling = "caller",
): Violation[] {
  const limits = limitExcesses(asked.limits, has.limits).map((excess): Violation => {
    return { code: "LIMIT_TOO_LARGE", ...excess, by: by.limit(excess.limit) };
  });
  if (networkExcesses(asked.network, has.network, ceiling).length === 0) return limits;
  return [{ code: "NETWORK_NOT_AVAILABLE", asked: asked.network, has: has.network, by: by.network }, ...limits];
}

function weaknesses(parent: Sandbox, asked: Policy | undefined): Violation[] {
  const lines = asked === undefined ? [] : policyWeaknesses(asked, parent.policy);
  if (asked === undefined || lines.length === 0) return [];
  return [{ code: "POLICY_WEAKER", asked: asked.name, has: parent.policy.name, lines, by: whoTookPolicy(parent) }];
}
