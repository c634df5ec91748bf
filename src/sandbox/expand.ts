import { present } from "../text/present.ts";
import { canonicalMounts, carve, governingMount, select } from "./access.ts";
import { type Narrowing, whoTookConsent } from "./ancestry.ts";
import {
  type ApprovalRules,
  ASK,
  consentOf,
  isLooser,
  meetApproval,
  OPERATIONS,
  type Operation,
  strictest,
  strictOf,
} from "./approval.ts";
import { isHostExecutedRoot } from "./host-executed.ts";
import { type Mode, type Mount, originOf } from "./mount.ts";
import { canonicalNetwork } from "./network/network.ts";
import type { NetworkRule } from "./network/rule.ts";
import { type Needs, type Sandbox, withheldApart } from "./sandbox.ts";
import type { Violation } from "./violation.ts";
import { covers, isReserved, type VirtualPath } from "./virtual-path.ts";

/** A directory granted to a running worker, with what its source shows of it. */
export interface DirectoryGrant {
  readonly id: string;
  /** Its path in the namespace. Everything below it is granted too. */
  readonly path: VirtualPath;
  readonly mode: "read" | "write";
  /** Who agreed to it, for `explain`. */
  readonly by: string;
  /** The mounts of the granting sandbox at and below `path`. Nothing beyond these is granted. */
  readonly source: readonly Mount[];
  /** True: the worker declares it, and its reading waited for consent. It comes with its own mode and consent. */
  readonly declared?: true;
}

/** A granted write: further writes need no question, a deletion still does, because it cannot be undone. */
const GRANTED: ApprovalRules = { write: "pre_approved", delete: "ask" };

/**
 * A new sandbox with one more directory, or with a directory that is now writable; nothing else differs. `source` comes from
 * the root of the tree, or from a parent that was expanded before. Pure.
 */
export function expand(sandbox: Sandbox, grant: DirectoryGrant): Sandbox {
  if (!grant.declared && isReserved(grant.path, sandbox))
    throw new RangeError(`nothing can be granted at ${grant.path}`);
  const isInside = ({ path }: Mount): boolean => covers(grant.path, path);
  const source = grant.source.filter(isInside);
  // Only at these places can the mounts of the sandbox or of the source begin or end.
  const places = new Set([grant.path, ...[...sandbox.mounts.filter(isInside), ...source].map((mount) => mount.path)]);
  const inside = [...places].flatMap((path) => mountAt(path, sandbox, source, grant) ?? []);
  const { withheld = [], ...whole } = sandbox;
  const outside = sandbox.mounts.filter((mount) => !isInside(mount));
  // A mount that may not be read stays out, with everything around it.
  const { mounts } = withheldApart(canonicalMounts([...outside, ...inside]));
  const waiting = grant.declared ? withheld.filter((mount) => !isInside(mount)) : withheld;
  if (JSON.stringify(mounts) === JSON.stringify(sandbox.mounts)) return sandbox;
  const told: Narrowing = {
    by: grant.by,
    kind: "grant",
    path: grant.path,
    from: governingMount(sandbox, grant.path) === undefined ? "none" : "ro",
    to: governingMount({ mounts }, grant.path)?.mode ?? "ro",
  };
  const rest = waiting.length === 0 ? {} : { withheld: waiting };
  return { ...whole, ...rest, mounts, narrowings: [...sandbox.narrowings, told] };
}

function mountAt(path: VirtualPath, sandbox: Sandbox, source: readonly Mount[], grant: DirectoryGrant): Mount | null {
  const had = carvedAt(sandbox.mounts, path);
  const shown = carvedAt(source, path);
  if (had === null) return shown === null ? null : opened(shown, grant);
  if (shown === null || grant.mode === "read" || had.mode === "rw" || shown.mode === "ro") return had;
  // If the worker sees another directory under this name, that one stays: it was not part of the question.
  return originOf(had) === originOf(shown) ? upgraded(had, shown, grant) : had;
}

function carvedAt(mounts: readonly Mount[], path: VirtualPath): Mount | null {
  const mount = governingMount({ mounts }, path);
  return mount === undefined ? null : carve(mount, path);
}

function opened(shown: Mount, grant: DirectoryGrant): Mount {
  if (grant.declared) return { ...shown, approval: readable(shown.approval), granted: grant.id };
  const { grantable: _, ...place } = shown;
  const mode: Mode = grant.mode === "write" ? shown.mode : "ro";
  const approval = mode === "rw" ? consentIn(shown) : readable(shown.approval);
  return { ...place, mode, approval, granted: grant.id };
}

/** The source's mount, whose view can be written. The constraints of the worker's own mount stay. */
function upgraded(had: Mount, shown: Mount, grant: DirectoryGrant): Mount {
  const { suffixes: _, maxFileBytes: __, grantable: ___, ...place } = shown;
  return {
    ...place,
    name: had.name,
    mode: "rw",
    ...meetConstraints(had, shown),
    ...stagingOf(had, shown),
    approval: consentIn(had, shown),
    granted: grant.id,
  };
}

/** What both allow. Absent: no constraint. */
export function meetConstraints(a: Constraints, b: Constraints): Constraints {
  const suffixes = a.suffixes?.filter((suffix) => b.suffixes?.includes(suffix) ?? true) ?? b.suffixes;
  const sizes = [a.maxFileBytes, b.maxFileBytes].filter((size) => size !== undefined);
  return {
    ...present({ suffixes }),
    ...(sizes.length === 0 ? {} : { maxFileBytes: Math.min(...sizes) }),
  };
}

type Constraints = Pick<Mount, "suffixes" | "maxFileBytes">;

/** The user agreed to read it. `blocked` is never loosened. */
function readable(approval: ApprovalRules = ASK): ApprovalRules {
  const { read, ...rest } = approval;
  return read === "blocked" ? approval : rest;
}

/** `blocked` is never loosened, by any approval. */
function consentIn(...mounts: readonly Mount[]): ApprovalRules {
  const blocked = (operation: Operation): boolean => mounts.some(({ approval }) => approval?.[operation] === "blocked");
  const call = strictest(...mounts.map(({ approval }) => consentOf(approval, "call")));
  return {
    ...strictOf({ ...(blocked("read") ? { read: "blocked" } : {}), call }),
    write: blocked("write") ? "blocked" : GRANTED.write,
    delete: blocked("delete") ? "blocked" : GRANTED.delete,
  };
}

/** A host of the network that was granted to a running worker, with what its source gives of it. */
export interface HostGrant {
  readonly id: string;
  /** `host:port`, canonical, without a wildcard. */
  readonly to: string;
  /** Who agreed to it, for `explain`. */
  readonly by: string;
  /** For exactly this host and port. Nothing beyond these is granted. */
  readonly rules: readonly NetworkRule[];
}

/** A new sandbox that reaches one more host; nothing else differs. Pure. */
export function expandNetwork(sandbox: Sandbox, { to, by, rules }: HostGrant): Sandbox {
  const { network, narrowings } = sandbox;
  if (network === true) return sandbox;
  const had = network === false ? { allow: [] } : network;
  const wider = canonicalNetwork({ allow: [...had.allow, ...rules] });
  const allow = typeof wider === "boolean" ? [] : wider.allow;
  if (JSON.stringify(allow) === JSON.stringify(had.allow)) return sandbox;
  return { ...sandbox, network: { ...had, allow }, narrowings: [...narrowings, { by, kind: "grant_network", to }] };
}

/** The files that a derivation opens, and what it refuses. The mounts may be redundant; `derive` makes them canonical. */
export interface Granted {
  readonly mounts: readonly GrantedMount[];
  readonly violations: readonly Violation[];
}

export interface GrantedMount {
  readonly mount: Mount;
  /** The mount of the parent; for a mount of the worker's own, the most that it could be. */
  readonly source: Mount;
}

/** One part of the parent's namespace that the child gets, in the same place. */
export interface Grant {
  readonly prefix: VirtualPath;
  /** Read and write if the parent can write, else read. */
  readonly write: boolean;
  readonly approval?: ApprovalRules | undefined;
  readonly staging?: Staging;
}

/**
 * The union of the grants, point by point. Host, name and constraints of a place come from the parent alone, so
 * overlapping grants can differ only in the mode (`rw` wins) and in the consent (the strictest wins).
 */
export function openGrants(
  parent: Sandbox,
  grants: readonly Grant[],
  { approval: blanket, stage, discard }: Pick<Needs, "approval" | "stage" | "discard">,
): Granted {
  const sources = new Map<VirtualPath, Mount>();
  for (const source of grants.flatMap((grant) => select(parent, grant.prefix))) sources.set(source.path, source);

  const mounts: GrantedMount[] = [];
  const violations: Violation[] = [];
  for (const source of sources.values()) {
    const covering = grants.filter((grant) => covers(grant.prefix, source.path));
    const mode = source.mode === "rw" && covering.some((grant) => grant.write) ? "rw" : "ro";
    const consent = consentFor(parent, source, mode, { own: strictestGranted(covering), blanket });
    const staging = stagingOf({ stage, discard }, ...covering.map((grant) => grant.staging));
    mounts.push({ mount: { ...source, ...staging, mode, approval: consent.approval }, source });
    violations.push(...consent.violations);
  }
  return { mounts, violations };
}

/** The consent that a worker declares: for one mount, and for all others. */
export interface ConsentAsked {
  readonly own: ApprovalRules | undefined;
  readonly blanket: ApprovalRules | undefined;
}

export interface Consented {
  readonly approval: ApprovalRules;
  readonly violations: readonly Violation[];
}

/**
 * The consent that a child's mount needs: never looser than its source's. A looser value for this mount is a violation.
 * A looser value for all mounts is one only if this mount is writable, because a read-only mount needs no consent.
 */
export function consentFor(parent: Sandbox, source: Mount, mode: Mode, asked: ConsentAsked): Consented {
  const said = asked.own ?? asked.blanket;
  const has = source.approval;
  if (has === undefined) return { approval: said ?? ASK, violations: [] };
  if (said === undefined) return { approval: has, violations: [] };

  const held = asked.own !== undefined || mode === "rw";
  const looser = OPERATIONS.filter(
    (operation) =>
      (asked.own !== undefined || (held && operation !== "read" && operation !== "call")) &&
      isLooser(said[operation] ?? "blocked", consentOf(has, operation)),
  );
  const violations = looser.map((operation): Violation => {
    const by = whoTookConsent(parent, source.path, operation);
    return {
      code: "APPROVAL_LOOSER",
      path: source.path,
      operation,
      asked: consentOf(said, operation),
      has: consentOf(has, operation),
      by,
    };
  });
  return { approval: meetApproval(has, said), violations };
}

function strictestGranted(grants: readonly Grant[]): ApprovalRules | undefined {
  const said = grants.flatMap(({ approval }) => approval ?? []);
  return said.length === 0 ? undefined : said.reduce(meetApproval);
}

/** What happens to a mount's writes: kept apart until a changeset is applied, or kept apart and dropped. */
export interface Staging {
  readonly stage?: true | undefined;
  readonly discard?: true | undefined;
}

/** What any of them declares, because staging is never removed. Spread the result over a mount. */
export function stagingOf(...said: readonly (Staging | undefined)[]): Pick<Mount, keyof Staging> {
  return {
    ...(said.some((each) => each?.stage) ? { stage: true as const } : {}),
    ...(said.some((each) => each?.discard) ? { discard: true as const } : {}),
  };
}

/**
 * How a mount reaches a cell, so that validator and kernel agree: `direct` if a bind mount allows exactly what the
 * validator does; `read-only` if nothing may be changed; `view` if a bind mount cannot express it: changes that need
 * consent, suffixes, sizes, `stage` or `discard`, and a directory that the host executes as a whole.
 */
export type Delivery = "direct" | "read-only" | "view";

export function deliveryOf(mount: Mount): Delivery {
  if (mount.suffixes !== undefined || mount.maxFileBytes !== undefined) return "view";
  if (mount.mode === "ro") return "direct";
  const { write, delete: remove } = mount.approval ?? ASK;
  if (write === "blocked" && remove === "blocked") return "read-only";
  if (mount.stage || mount.discard) return "view";
  if (mount.view === undefined && isHostExecutedRoot(mount)) return "view";
  return write === "pre_approved" && remove === "pre_approved" ? "direct" : "view";
}

/** True if changes in the mount's view are meant to be applied. */
export function comesBack(mount: Mount): boolean {
  return mount.mode === "rw" && !mount.discard;
}

/** The mount with its view in place of the directory. Tools and cells act on it, and children are derived from it. */
export function throughView(mount: Mount, host: string): Mount {
  const { stage: _stage, discard, view, approval = ASK, ...rest } = mount;
  const origin = view?.origin ?? mount.host;
  // Discarded changes are never applied, so a called worker needs no consent for them either.
  const asked = discard ? ASK : askedOnTheWay(approval, view?.asked);
  return { ...rest, host, approval: discard ? unasked(approval) : approval, view: { origin, asked } };
}

/** A sandbox as its calls would be derived from it, for `explain` and `check`, which run nothing. */
export function asIfStaged<Shown extends { readonly mounts: readonly Mount[] }>(sandbox: Shown): Shown {
  const mounts = sandbox.mounts.map((mount) => (deliveryOf(mount) === "view" ? throughView(mount, mount.host) : mount));
  return { ...sandbox, mounts };
}

/** The consent that is needed when changes leave this mount's view, without what is asked further out anyway. */
export function askedOnApplying({ approval = ASK, view }: Mount): ApprovalRules {
  return {
    write: approval.write === "ask" && view?.asked.write === "ask" ? "pre_approved" : approval.write,
    delete: approval.delete === "ask" && view?.asked.delete === "ask" ? "pre_approved" : approval.delete,
  };
}

function askedOnTheWay(own: ApprovalRules, further: ApprovalRules | undefined): ApprovalRules {
  return {
    write: own.write === "ask" || further?.write === "ask" ? "ask" : own.write,
    delete: own.delete === "ask" || further?.delete === "ask" ? "ask" : own.delete,
  };
}

function unasked({ write, delete: remove, ...rest }: ApprovalRules): ApprovalRules {
  return {
    ...rest,
    write: write === "ask" ? "pre_approved" : write,
    delete: remove === "ask" ? "pre_approved" : remove,
  };
}
