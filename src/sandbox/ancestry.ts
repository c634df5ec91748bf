import type { Operation } from "./approval.ts";
import type { LimitName } from "./limits.ts";
import type { Narrowing, Sandbox } from "./sandbox.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

/** Who took a thing away: the latest narrowing that did, else "project", where it was never there. */
function whoTook(sandbox: Sandbox, did: (narrowing: Narrowing) => boolean): string {
  return sandbox.narrowings.findLast(did)?.by ?? "project";
}

export function whoTookReading(sandbox: Sandbox, path: VirtualPath): string {
  return whoTook(sandbox, (n) => n.kind === "mount" && n.to === "none" && touches(n.path, path));
}

export function whoTookWriting(sandbox: Sandbox, path: VirtualPath): string {
  return whoTook(sandbox, (n) => n.kind === "mount" && n.from === "rw" && touches(n.path, path));
}

export function whoTookConsent(sandbox: Sandbox, path: VirtualPath, operation: Operation): string {
  return whoTook(sandbox, (n) => n.kind === "approval" && n.operation === operation && touches(n.path, path));
}

export function whoTookConstraint(
  sandbox: Sandbox,
  path: VirtualPath,
  constraint: "suffixes" | "maxFileBytes",
): string {
  return whoTook(sandbox, (n) => n.kind === "constraint" && n.constraint === constraint && touches(n.path, path));
}

export function whoTookNetwork(sandbox: Sandbox): string {
  return whoTook(sandbox, (n) => n.kind === "network");
}

/** Where nobody took it, what there is was either declared, or is all that the policy lets anybody have. */
export function whoTookLimit(sandbox: Sandbox, limit: LimitName): string {
  const by = whoTook(sandbox, (n) => n.kind === "limit" && n.limit === limit);
  const { limits, policy } = sandbox;
  return by === "project" && limits[limit] === policy.maxLimits[limit] ? `policy ${policy.name}` : by;
}

export function whoTookPolicy(sandbox: Sandbox): string {
  return whoTook(sandbox, (n) => n.kind === "policy");
}

/** Losing `/` loses `/data`; and who asks for `/` misses what was taken at `/data`. */
function touches(taken: VirtualPath, asked: VirtualPath): boolean {
  return covers(taken, asked) || covers(asked, taken);
}
