import { domainToASCII } from "node:url";
import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import { bugText } from "../../platform/errno.ts";
import { parseTarget } from "../../sandbox/network/rule.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import type { Grantee, HostGrantRecord } from "../model/grantee.ts";
import { type GrantSurroundings, NOT_RECORDED, type Refused, refuseHost } from "./judge.ts";
import { type HostJudgement, judgeHost } from "./judge-host.ts";

/** A domain name has fewer characters than this, in whatever alphabet. */
const MAX_CHARACTERS = 300;

/**
 * One host and port in the form in which rules name it, or what is wrong with the text. Upper case, a dot at the end and names
 * outside of ASCII are other ways to write the same host, so a person is asked about it once, and by the name that is looked up.
 */
export function parseAskedHost(
  raw: string,
): { readonly ok: true; readonly to: string } | { readonly ok: false; readonly reason: string } {
  const parts = /^([^\s/@]+):([0-9]+)$/u.exec(raw);
  if (raw.length > MAX_CHARACTERS || parts === null)
    return { ok: false, reason: "write one host and its port, as in `api.example.org:443`" };
  const [, name = "", port = ""] = parts;
  const ascii = isPlain(name) ? name : domainToASCII(name);
  const parsed = parseTarget(`${ascii.replace(/\.$/, "")}:${port}`);
  if (!parsed.ok) return parsed;
  const { host, wildcard } = parsed.target;
  if (wildcard) return { ok: false, reason: "a wildcard cannot be asked for; name one host" };
  return { ok: true, to: `${host}:${Number(port)}` };
}

/** Only other names are rewritten: the function for that also reads numbers as addresses. */
function isPlain(name: string): boolean {
  return /^[\x21-\x7e]+$/.test(name);
}

/** The most hosts that the connections of one run ask for by themselves. */
const MAX_ASKED = 64;

const WHY = "a program in its container tried to connect";

/**
 * Asks for the host of a connection, if the run may be granted it. Each host is asked for once, and every connection to it gets the
 * same answer: true if the host was granted. A question that is open when `signal` is aborted is withdrawn. Never rejects.
 */
export function asksByConnection(
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
  trouble: (detail: string) => void,
): (to: string) => Promise<boolean> {
  const asked = new Map<string, Promise<boolean>>();
  const ask = async (host: string): Promise<boolean> => {
    try {
      return (await requestHost({ host, why: WHY }, grantee, around, signal)).ok;
    } catch (error) {
      if (!signal.aborted) trouble(`internal error in a request for a host: ${bugText(error)}`);
      return false;
    }
  };
  return async (host) => {
    const parsed = parseAskedHost(host);
    if (!parsed.ok) return false;
    const known = asked.get(parsed.to);
    if (known !== undefined) return await known;
    const judged = judgedNow(parsed.to, grantee);
    if (asked.size >= MAX_ASKED || signal.aborted || !judged.ok || judged.had) return false;
    const answer = ask(parsed.to);
    asked.set(parsed.to, answer);
    return await answer;
  };
}

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
