import { meetApproval } from "./approval.ts";
import type { Granted, GrantedMount } from "./granted.ts";
import { consentFor } from "./granted.ts";
import type { Approval, Mount } from "./mount.ts";
import type { Needs } from "./needs.ts";
import type { Sandbox } from "./sandbox.ts";
import { select } from "./select.ts";
import { type Sides, sidesOf } from "./sides.ts";
import type { Violation } from "./violation.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

/** One part of the parent's namespace that the child gets, in the same place. */
export interface Grant {
  readonly prefix: VirtualPath;
  /** Read and write where the parent can write, else read. */
  readonly write: boolean;
  readonly approval?: Approval | undefined;
  readonly sides?: Sides;
}

/**
 * The union of the grants, point by point. Host, name and constraints of a place come from the parent alone, so where
 * grants overlap they can differ only in the mode (`rw` wins) and in the consent (the strictest wins).
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
    const sides = sidesOf({ stage, discard }, ...covering.map((grant) => grant.sides));
    mounts.push({ mount: { ...source, ...sides, mode, approval: consent.approval }, source });
    violations.push(...consent.violations);
  }
  return { mounts, violations };
}

function strictest(grants: readonly Grant[]): Approval | undefined {
  const said = grants.flatMap(({ approval }) => approval ?? []);
  return said.length === 0 ? undefined : said.reduce(meetApproval);
}
