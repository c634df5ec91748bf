import { present } from "../text/present.ts";
import { canonicalMounts } from "./access.ts";
import { type Narrowing, type WithNarrowings, whoTook, whoTookLimit, whoTookPolicy } from "./ancestry.ts";
import type { ApprovalRules } from "./approval.ts";
import { stagingOf } from "./expand.ts";
import { type LimitName, type Limits, limitExcesses, meetLimits } from "./limits.ts";
import { canonicalSuffixes, type Mode, type Mount } from "./mount.ts";
import { askedBy, canonicalNetwork, meetNetwork, networkExcesses } from "./network/network.ts";
import type { Network, NetworkExcess } from "./network/rule.ts";
import { type Policy, policyWeaknesses, withinPolicy } from "./policy.ts";
import { type Needs, type Sandbox, withheldApart } from "./sandbox.ts";
import type { Violation } from "./violation.ts";
import { ROOT, type VirtualPath } from "./virtual-path.ts";

/** What a project declares, whichever of the three forms it used; host paths are already resolved. */
export interface ProjectDeclaration {
  readonly mounts: readonly Mount[];
  /** True for the root form. */
  readonly rooted: boolean;
  /** Absent: none. */
  readonly network?: Network;
  /** Names of the secrets that its workers may have inside of their cells. Absent: none. */
  readonly secrets?: readonly string[];
  readonly limits?: Limits;
  readonly workingDir?: VirtualPath;
  /** True: every mount is read-only. */
  readonly readonly?: boolean;
  /** True: a worker that is run by itself may bring host directories that the project does not give. */
  readonly ownPaths?: boolean;
}

interface Constraints {
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: ApprovalRules;
  readonly stage?: true;
  readonly discard?: true;
}

/** One entry of the zones form or of the paths form. */
export interface NamedPlace extends Constraints {
  readonly name: string;
  /** Its place in the namespace; absent: `/NAME`. */
  readonly at?: VirtualPath | undefined;
  /** Absolute host path with no symbolic link in it. */
  readonly host: string;
  /** Absent: `ro`. */
  readonly mode?: Mode;
  readonly grantable?: true;
}

/** The root form: one directory, which appears as `/`. */
export interface RootPlace extends Constraints {
  readonly host: string;
  /** Absent: false. */
  readonly readonly?: boolean;
}

/**
 * The root of every chain: what a project gives, as far as its policy allows it. What the policy takes away is a narrowing: a
 * worker that asks for it is refused, and no other.
 */
export function projectSandbox(declaration: ProjectDeclaration, policy: Policy): Sandbox {
  const asked = { network: declaration.network ?? false, limits: declaration.limits ?? {} };
  const { network, limits, violations } = withinCeilings(asked, policy);
  const secrets = projectSecrets(declaration.secrets ?? [], policy);
  const mounts = declaration.mounts.map((mount) =>
    declaration.readonly ? { ...withoutGrantable(mount), mode: "ro" as const } : mount,
  );
  return {
    chain: ["project"],
    ...withheldApart(canonicalMounts(mounts)),
    workingDir: declaration.workingDir ?? ROOT,
    network,
    ...secrets.given,
    ...(allowsWritableRoot(policy) ? { writableRoot: true as const } : {}),
    limits,
    policy,
    narrowings: [...violations.flatMap((violation) => narrowingOf(violation, network)), ...secrets.narrowings],
    rooted: declaration.rooted,
    ...(declaration.ownPaths ? { ownPaths: true as const } : {}),
  };
}

/** What a project leaves to be granted is the project's alone. */
export function withoutGrantable({ grantable: _, ...mount }: Mount): Mount {
  return mount;
}

function narrowingOf(violation: Violation, network: Network): Narrowing[] {
  if (violation.code === "NETWORK_NOT_AVAILABLE")
    return [{ by: violation.by, kind: "network", from: canonicalNetwork(violation.asked), to: network }];
  if (violation.code !== "LIMIT_TOO_LARGE") return [];
  const { by, limit, asked, has } = violation;
  return [{ by, kind: "limit", limit, from: asked, to: has }];
}

export function mountsFromZones(zones: readonly NamedPlace[]): Mount[] {
  return zones.map(namedMount);
}

export function mountsFromPaths(paths: readonly NamedPlace[]): Mount[] {
  return paths.map(namedMount);
}

export function mountFromRoot(root: RootPlace): Mount[] {
  return [{ name: "/", path: ROOT, host: root.host, mode: root.readonly ? "ro" : "rw", ...constraintsOf(root) }];
}

function namedMount(place: NamedPlace): Mount {
  const { name, at, host, mode = "ro", grantable } = place;
  const path = at ?? (`/${name}` as VirtualPath);
  return { name, path, host, mode, ...present({ grantable }), ...constraintsOf(place) };
}

function constraintsOf({ suffixes, maxFileBytes, approval, stage, discard }: Constraints): Constraints {
  return {
    ...(suffixes === undefined ? {} : { suffixes: canonicalSuffixes(suffixes) }),
    ...present({ maxFileBytes, approval }),
    ...stagingOf({ stage, discard }),
  };
}

/** Network, limits and policy. Each is at most the caller's, even if a violation is reported. */
export interface Ceilings {
  readonly network: Network;
  readonly limits: Limits;
  readonly policy: Policy;
  readonly violations: readonly Violation[];
}

/** A declaration as far as a policy allows it, with what exceeds the policy. */
export function withinCeilings(asked: AskedOfPolicy, policy: Policy): Ceilings {
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

interface AskedOfPolicy {
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
function whoTookNetwork(sandbox: WithNarrowings, excess: NetworkExcess): string {
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

/** Secrets that a worker has inside of its cell, by name. Absent from a sandbox: none. */
export interface DerivedSecrets {
  readonly given: Pick<Sandbox, "secrets">;
  readonly violations: readonly Violation[];
}

/** Of the asked names, those that the caller has and `policy`, the worker's own, allows; any other is a violation. */
export function deriveSecrets(parent: Sandbox, asked: readonly string[], policy: Policy): DerivedSecrets {
  const has = parent.secrets ?? [];
  const valid = allowsSecrets(policy) ? has : [];
  const byPolicy = `policy ${policy.name}`;
  const violations = asked
    .filter((name) => !valid.includes(name))
    .map((name): Violation => {
      const by = has.includes(name) ? byPolicy : whoTookSecret(parent, name);
      return { code: "SECRET_NOT_AVAILABLE", asked: name, by, valid };
    });
  return { given: asSecrets(asked.filter((name) => valid.includes(name))), violations };
}

/** What a project gives, as far as its policy allows it. */
export function projectSecrets(
  declared: readonly string[],
  policy: Policy,
): { readonly given: Pick<Sandbox, "secrets">; readonly narrowings: readonly Narrowing[] } {
  if (declared.length === 0 || allowsSecrets(policy)) return { given: asSecrets(declared), narrowings: [] };
  return { given: {}, narrowings: [{ by: `policy ${policy.name}`, kind: "secrets", from: [...declared], to: [] }] };
}

function allowsSecrets({ hardening }: Policy): boolean {
  return hardening.secrets === "allowed";
}

/** A writable root for a child that asks for it: only if its caller has one, and both policies allow it. */
export function deriveRoot(
  parent: Sandbox,
  { writableRoot }: Needs,
  policy: Policy,
): { readonly given: Pick<Sandbox, "writableRoot">; readonly violations: readonly Violation[] } {
  if (writableRoot === undefined) return { given: {}, violations: [] };
  if (parent.writableRoot && allowsWritableRoot(policy)) return { given: { writableRoot }, violations: [] };
  const ofPolicy = [policy, parent.policy].find((one) => !allowsWritableRoot(one));
  const by = ofPolicy === undefined ? (parent.chain.at(-1) ?? "project") : `policy ${ofPolicy.name}`;
  return { given: {}, violations: [{ code: "ROOT_NOT_WRITABLE", by }] };
}

function allowsWritableRoot({ hardening }: Policy): boolean {
  return !hardening.readOnlyRoot;
}

/** In one order, so that the same secrets give the same plan. */
function asSecrets(names: readonly string[]): Pick<Sandbox, "secrets"> {
  return names.length === 0 ? {} : { secrets: [...new Set(names)].sort() };
}

function whoTookSecret(sandbox: Sandbox, name: string): string {
  return whoTook(sandbox, (n) => n.kind === "secrets" && n.from.includes(name) && !n.to.includes(name));
}
