import { select } from "./access.ts";
import { whoTookConsent } from "./ancestry.ts";
import { type Approval, ASK, consentOf, isLooser, meetApproval, OPERATIONS } from "./approval.ts";
import type { Mode, Mount } from "./mount.ts";
import type { Needs } from "./needs.ts";
import type { Sandbox } from "./sandbox.ts";
import { type Staging, stagingOf } from "./staging.ts";
import type { Violation } from "./violation.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

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
  readonly approval?: Approval | undefined;
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
    const consent = consentFor(parent, source, mode, { own: strictest(covering), blanket });
    const staging = stagingOf({ stage, discard }, ...covering.map((grant) => grant.staging));
    mounts.push({ mount: { ...source, ...staging, mode, approval: consent.approval }, source });
    violations.push(...consent.violations);
  }
  return { mounts, violations };
}

/** The consent that a worker declares: for one mount, and for all others. */
export interface ConsentAsked {
  readonly own: Approval | undefined;
  readonly blanket: Approval | undefined;
}

export interface Consented {
  readonly approval: Approval;
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

function strictest(grants: readonly Grant[]): Approval | undefined {
  const said = grants.flatMap(({ approval }) => approval ?? []);
  return said.length === 0 ? undefined : said.reduce(meetApproval);
}
