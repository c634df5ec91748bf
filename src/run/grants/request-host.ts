import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import type { HostGrantRecord } from "../model/grant.ts";
import type { Grantee } from "../model/grantee.ts";
import { parseAskedHost } from "./asked-host.ts";
import { type HostJudgement, judgeHost } from "./judge-host.ts";
import { type Refused, refuseHost } from "./refusal.ts";
import { type GrantSurroundings, NOT_RECORDED } from "./terms.ts";

/** A host that a worker does not reach. */
export interface HostNeed {
  /** As the worker wrote it. */
  readonly host: string;
  /** What it is for, in one sentence. */
  readonly why: string;
}

export type HostOutcome =
  | {
      readonly ok: true;
      /** In canonical form. */
      readonly to: string;
      /** Null if the worker already reaches it. */
      readonly scope: Decision["scope"] | null;
    }
  | Refused;

/** The most hosts that a question names as reached already. */
const MAX_REACHED = 20;

/** Asks for a host of the network, once for the whole chain of runs that would be granted it. */
export async function requestHost(
  need: HostNeed,
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<HostOutcome> {
  await around.ledger.look();
  const parsed = parseAskedHost(need.host);
  if (!parsed.ok) return refuseHost("GRANT_NO_HOST", need.host.slice(0, 300), `It is not a host: ${parsed.reason}.`);
  const { to } = parsed;
  if (!grantee.takesRequest())
    return refuseHost("GRANT_LIMIT", to, "The workers of this tree of runs have requested too much.");
  const judged = judgedNow(to, grantee);
  if (!judged.ok) return judged;
  if (judged.had) return { ok: true, to, scope: null };
  if (around.ledger.wasRevoked({ worker: grantee.worker.name, to }))
    return refuseHost("GRANT_REVOKED", to, "It was granted before and then revoked.");
  const decision = await around.approver.decide(questionOf(to, need, grantee), signal);
  if (decision.outcome === "timed_out")
    return refuseHost("APPROVAL_TIMED_OUT", to, "It needs approval, and no answer came in time.");
  if (decision.outcome === "denied")
    return refuseHost("APPROVAL_DENIED", to, `It needs approval, which was denied: ${decision.reason}.`);
  // Other grants may have been added or revoked meanwhile: it is judged again on what holds now.
  return await around.ledger.inTurn(async () => {
    signal.throwIfAborted();
    const now = judgedNow(to, grantee);
    if (!now.ok) return now;
    if (now.had) return { ok: true, to, scope: null };
    if (around.ledger.wasRevoked({ worker: grantee.worker.name, to }))
      return refuseHost("GRANT_REVOKED", to, "It was granted before and then revoked.");
    const record = recordOf(to, need, decision, now, grantee, around);
    if (!(await around.record(record))) return refuseHost("APPROVAL_DENIED", to, NOT_RECORDED);
    const violations = await around.ledger.add(record, () => kept(record, decision, now, grantee));
    if (violations.length > 0) return refuseHost("GRANT_NOT_ABOVE", to, violations.map(describeViolation).join(" "));
    return { ok: true, to, scope: decision.scope };
  });
}

/** As the runs of the chain are at this moment. */
export function judgedNow(to: string, grantee: Grantee): HostJudgement {
  return judgeHost(to, grantee.chain(), grantee.project, grantee.learns);
}

function questionOf(to: string, { why }: HostNeed, grantee: Grantee): ApprovalRequest {
  const { run, root, worker, sandbox } = grantee;
  const { network } = sandbox;
  const allow = typeof network === "boolean" ? [] : network.allow;
  const reaches = [...new Set(allow.map((rule) => rule.to))].slice(0, MAX_REACHED);
  const through = grantee.chain().map((each) => each.worker.name);
  return { run, root, worker: worker.name, operations: ["grant_network"], paths: [], to, reaches, through, why };
}

/** From the one nearest to the project down; if one cannot have it, none has. */
async function kept(
  { id, to }: HostGrantRecord,
  { reason }: Decision,
  { first, rules }: HostJudgement & { ok: true },
  grantee: Grantee,
): Promise<readonly Violation[]> {
  const granted: Grantee[] = [];
  let isKept = false;
  try {
    for (const [index, each] of grantee.chain().slice(first).entries()) {
      granted.push(each);
      const violations = await each.holdHost({ id, to, by: `approval (${reason})`, rules: rules[index] ?? [] });
      if (violations.length > 0) return violations;
    }
    isKept = true;
    return [];
  } finally {
    if (!isKept) for (const each of granted) await each.releaseHosts(id);
  }
}

function recordOf(
  to: string,
  { why }: HostNeed,
  { scope }: Decision,
  { first, rules: all }: HostJudgement & { ok: true },
  grantee: Grantee,
  { newId, now }: GrantSurroundings,
): HostGrantRecord {
  const { run, root, worker } = grantee;
  const through = grantee.chain().map((each) => each.worker.name);
  const rules = all.at(-1) ?? [];
  const asked = { id: newId(), run, root, worker: worker.name, through, granted: through.slice(first) };
  return { ...asked, to, rules, scope, why, grantedAt: now().toISOString() };
}
