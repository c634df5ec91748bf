import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { reachesHost, rulesToGrant, takenPlace } from "../../sandbox/network/hosts.ts";
import { meetNetwork } from "../../sandbox/network/network.ts";
import { isAmong, MAX_PLACES, type Network, type NetworkRule } from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { type GrantRefusalCode, type Refused, refuseHost } from "./judge.ts";

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
export interface HostLevel {
  readonly worker: Pick<WorkerDefinition, "name">;
  /** Its `network.dynamic` is what it may be granted. */
  readonly sandbox: Pick<Sandbox, "network" | "policy">;
  /** Its caller took something away for this one call. */
  readonly limited: boolean;
  /** What it was granted so far. */
  readonly hosts: ReadonlySet<string>;
}

export type HostJudgement =
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
