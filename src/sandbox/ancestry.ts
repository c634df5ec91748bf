import type { Operation } from "./approval.ts";
import type { LimitName, Limits } from "./limits.ts";
import type { Network } from "./network/rule.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

/**
 * One thing that a derivation took away, or that was granted at run time. An approval's `from` is `unset` if no
 * ancestor had set it.
 */
export type Narrowing =
  | {
      readonly by: string;
      readonly kind: "mount";
      readonly path: VirtualPath;
      readonly from: "ro" | "rw";
      readonly to: "none" | "ro";
    }
  | {
      readonly by: string;
      readonly kind: "approval";
      readonly path: VirtualPath;
      readonly operation: Operation;
      readonly from: string;
      readonly to: string;
    }
  | {
      readonly by: string;
      readonly kind: "constraint";
      readonly path: VirtualPath;
      readonly constraint: "suffixes" | "maxFileBytes";
      readonly from: readonly string[] | number | null;
      readonly to: readonly string[] | number;
    }
  | { readonly by: string; readonly kind: "network"; readonly from: Network; readonly to: Network }
  | {
      readonly by: string;
      readonly kind: "limit";
      readonly limit: LimitName;
      readonly from: number | null;
      readonly to: number;
    }
  | {
      readonly by: string;
      readonly kind: "secrets";
      readonly from: readonly string[];
      readonly to: readonly string[];
    }
  | { readonly by: string; readonly kind: "policy"; readonly from: string; readonly to: string }
  | {
      readonly by: string;
      readonly kind: "grant";
      readonly path: VirtualPath;
      readonly from: "none" | "ro";
      readonly to: "ro" | "rw";
    }
  | { readonly by: string; readonly kind: "grant_network"; readonly to: string };

/** Anything that knows its own history, as a sandbox does. */
export interface WithNarrowings {
  readonly narrowings: readonly Narrowing[];
}

/** Who took a thing away: the latest narrowing that did, else "project", which never granted it. */
export function whoTook(sandbox: WithNarrowings, did: (narrowing: Narrowing) => boolean): string {
  return sandbox.narrowings.findLast(did)?.by ?? "project";
}

export function whoTookReading(sandbox: WithNarrowings, path: VirtualPath): string {
  return whoTook(sandbox, (n) => n.kind === "mount" && n.to === "none" && touches(n.path, path));
}

export function whoTookWriting(sandbox: WithNarrowings, path: VirtualPath): string {
  return whoTook(sandbox, (n) => n.kind === "mount" && n.from === "rw" && touches(n.path, path));
}

export function whoTookConsent(sandbox: WithNarrowings, path: VirtualPath, operation: Operation): string {
  return whoTook(sandbox, (n) => n.kind === "approval" && n.operation === operation && touches(n.path, path));
}

export function whoTookConstraint(
  sandbox: WithNarrowings,
  path: VirtualPath,
  constraint: "suffixes" | "maxFileBytes",
): string {
  return whoTook(sandbox, (n) => n.kind === "constraint" && n.constraint === constraint && touches(n.path, path));
}

/** If no ancestor lowered it, the limit is the project's own, or the maximum of the policy. */
export function whoTookLimit(
  sandbox: WithNarrowings & {
    readonly limits: Limits;
    readonly policy: { readonly name: string; readonly maxLimits: Limits };
  },
  limit: LimitName,
): string {
  const by = whoTook(sandbox, (n) => n.kind === "limit" && n.limit === limit);
  const { limits, policy } = sandbox;
  return by === "project" && limits[limit] === policy.maxLimits[limit] ? `policy ${policy.name}` : by;
}

export function whoTookPolicy(sandbox: WithNarrowings): string {
  return whoTook(sandbox, (n) => n.kind === "policy");
}

/** Losing `/` loses `/data`, and a request for `/` is affected by the loss of `/data`. */
function touches(taken: VirtualPath, asked: VirtualPath): boolean {
  return covers(taken, asked) || covers(asked, taken);
}
