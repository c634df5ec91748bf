import { domainToASCII } from "node:url";
import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { bugText } from "../../platform/errno.ts";
import { reachesHost, rulesToGrant, takenPlace } from "../../sandbox/network/hosts.ts";
import { meetNetwork } from "../../sandbox/network/network.ts";
import { isAmong, MAX_PLACES, type Network, type NetworkRule, parseTarget } from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import type { Grantee, HostGrantRecord } from "../model/grantee.ts";
import { type GrantRefusalCode, type GrantSurroundings, NOT_RECORDED, type Refused, refuseHost } from "./judge.ts";

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
interface HostNeed {
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
function judgedNow(to: string, grantee: Grantee): HostJudgement {
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

/** The most hosts that one run learns; a person is not asked for more. */
const MAX_LEARNED = 64;

/**
 * The sandbox of a run whose user wants to be asked about every host: it reaches what it reached, and has a place to ask for more.
 * A worker with all of the network has nothing to learn.
 */
export function learningNetwork(sandbox: Sandbox): Sandbox {
  const { network } = sandbox;
  if (network === true) return sandbox;
  const had = network === false ? { allow: [] } : network;
  return { ...sandbox, network: { ...had, dynamic: { within: had.dynamic?.within ?? [], max: MAX_LEARNED } } };
}

/** One run of the chain that leads from the root to the run that asks. */
interface HostLevel {
  readonly worker: Pick<WorkerDefinition, "name">;
  /** Its `network.dynamic` is what it may be granted. */
  readonly sandbox: Pick<Sandbox, "network" | "policy">;
  /** Its caller took something away for this one call. */
  readonly limited: boolean;
  /** What it was granted so far. */
  readonly hosts: ReadonlySet<string>;
}

type HostJudgement =
  | {
      readonly ok: true;
      /** True if the worker already reaches it: no question is needed. */
      readonly had: boolean;
      /** The first of the chain that has to be granted it, and all after it; as many as the chain has: none. */
      readonly first: number;
      /** What each of them is granted, from the first on. */
      readonly rules: readonly (readonly NetworkRule[])[];
    }
  | Refused;

/**
 * Decides if a host may be granted at all, and to which runs, before a person is asked. Pure. `learns`: the person wants to be
 * asked about every host, also about those that no file of the project names; the policies' ceilings hold.
 */
export function judgeHost(
  to: string,
  chain: readonly HostLevel[],
  project: Pick<Sandbox, "network" | "policy">,
  learns = false,
): HostJudgement {
  const asking = chain.at(-1);
  if (asking === undefined) throw new RangeError("a chain has at least the run that asks");
  if (reachesHost(asking.sandbox.network, to)) return { ok: true, had: true, first: chain.length, rules: [] };
  const { first, source } = originOf(to, chain, project, learns);
  // A worker may name a policy of its own, whose list may be longer than that of the project's.
  let above = first === 0 ? allowedBy(project.policy.network, source) : source;
  const rules: (readonly NetworkRule[])[] = [];
  for (const [index, level] of chain.entries()) {
    if (index < first) continue;
    const refused = refusalAt(to, level, index === chain.length - 1, learns);
    if (refused !== null) return refused;
    above = allowedBy(level.sandbox.policy.network, above);
    const taken = takenPlace(level.sandbox.network, above);
    if (taken !== null)
      return refuseHost("GRANT_RESERVED", to, `In the container it would be at the place of '${taken}'.`);
    rules.push(above);
  }
  if (above.length > 0) return { ok: true, had: false, first, rules };
  const because =
    source.length > 0
      ? "The policy does not allow it."
      : "No caller of this worker reaches it, and the project does not allow it.";
  return refuseHost("GRANT_NOT_ABOVE", to, because);
}

/** Its source: the nearest run above that reaches it, else the project; nothing if neither gives it. */
function originOf(
  to: string,
  chain: readonly HostLevel[],
  { network }: Pick<Sandbox, "network">,
  learns: boolean,
): { readonly first: number; readonly source: readonly NetworkRule[] } {
  for (const [index, { sandbox }] of [...chain.slice(0, -1).entries()].reverse()) {
    if (reachesHost(sandbox.network, to)) return { first: index + 1, source: rulesToGrant(sandbox.network, to) };
  }
  if (reachesHost(network, to)) return { first: 0, source: rulesToGrant(network, to) };
  const isNamed = learns || isAmong(to, withinOf(network));
  return { first: 0, source: isNamed ? [{ to }] : [] };
}

/** A policy is the ceiling also of what a person may agree to. */
function allowedBy(ceiling: Network, rules: readonly NetworkRule[]): readonly NetworkRule[] {
  if (rules.length === 0) return [];
  const met = meetNetwork({ allow: rules }, ceiling, "policy");
  return typeof met === "boolean" ? [] : met.allow;
}

function withinOf(network: Network): readonly string[] {
  return typeof network === "boolean" ? [] : (network.dynamic?.within ?? []);
}

/** The most entries that a refusal names. */
const MAX_NAMED = 20;

function refusalAt(
  to: string,
  { worker, sandbox, limited, hosts }: HostLevel,
  isAsking: boolean,
  learns: boolean,
): Refused | null {
  const { network } = sandbox;
  const who = isAsking ? "This worker" : `The worker '${worker.name}', through which it would come,`;
  const no = (code: GrantRefusalCode, because: string, instead?: string): Refused =>
    refuseHost(code, to, because, instead);
  if (typeof network === "boolean" || network.dynamic === undefined)
    return no("GRANT_NOT_DYNAMIC", `${who} cannot be granted hosts: its network has no \`dynamic\`.`);
  if (limited) return no("GRANT_LIMITED_CALL", `${who} was called with limits for this one call.`);
  const { within, max } = network.dynamic;
  if (!learns && !isAmong(to, within)) {
    const named = within.slice(0, MAX_NAMED).join(", ");
    return no(
      "GRANT_OUTSIDE",
      `${who} may only be granted hosts of its \`dynamic.within\`.`,
      `Ask for one of: ${named}.`,
    );
  }
  if (hosts.size >= max || network.allow.length >= MAX_PLACES)
    return no("GRANT_LIMIT", `${who} already has ${hosts.size} granted hosts, which is its limit.`);
  return null;
}
