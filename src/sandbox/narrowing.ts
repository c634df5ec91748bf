import { hostPathOf } from "./access.ts";
import type { Narrowing } from "./ancestry.ts";
import { type Approval, CHANGES, consentOf, OPERATIONS, type Operation } from "./approval.ts";
import type { GrantedMount } from "./grant.ts";
import { LIMIT_NAMES } from "./limits.ts";
import type { Sandbox } from "./sandbox.ts";

/** A child's sandbox without the record of what it lost. */
export type Narrowed = Omit<Sandbox, "narrowings">;

/** What `child` lost compared with `parent`, for `explain` and for violations, which name who took a thing away. */
export function narrowingsOf(
  parent: Sandbox,
  child: Narrowed,
  granted: readonly GrantedMount[],
  by: string,
): Narrowing[] {
  return [
    ...lostMounts(parent, child, by),
    ...granted.flatMap((each) => [...lostWriting(each, by), ...lostConstraints(each, by), ...lostConsent(each, by)]),
    ...lostNetwork(parent, child, by),
    ...lostSecrets(parent, child, by),
    ...lostLimits(parent, child, by),
    ...lostPolicy(parent, child, by),
  ];
}

function lostMounts(parent: Sandbox, child: Narrowed, by: string): Narrowing[] {
  const lost = parent.mounts.filter((mount) => hostPathOf(child, mount.path) !== mount.host);
  return lost.map(({ path, mode }) => ({ by, kind: "mount", path, from: mode, to: "none" }));
}

function lostWriting({ mount, source }: GrantedMount, by: string): Narrowing[] {
  if (source.mode !== "rw" || mount.mode === "rw") return [];
  return [{ by, kind: "mount", path: mount.path, from: "rw", to: "ro" }];
}

function lostConstraints({ mount, source }: GrantedMount, by: string): Narrowing[] {
  return (["suffixes", "maxFileBytes"] as const).flatMap((constraint): Narrowing[] => {
    const [from, to] = [source[constraint] ?? null, mount[constraint] ?? null];
    if (to === null || JSON.stringify(from) === JSON.stringify(to)) return [];
    return [{ by, kind: "constraint", path: mount.path, constraint, from, to }];
  });
}

/** Consent to changes matters only for writable mounts. `unset`: no ancestor had set it. */
function lostConsent({ mount, source }: GrantedMount, by: string): Narrowing[] {
  const said = (approval: Approval | undefined, operation: Operation) =>
    approval === undefined && CHANGES.some((change) => change === operation) ? "unset" : consentOf(approval, operation);
  return OPERATIONS.flatMap((operation): Narrowing[] => {
    if (mount.mode !== "rw" && CHANGES.some((change) => change === operation)) return [];
    const from = said(source.approval, operation);
    const to = said(mount.approval, operation);
    if (from === to || to === "pre_approved") return [];
    return [{ by, kind: "approval", path: mount.path, operation, from, to }];
  });
}

function lostNetwork(parent: Sandbox, child: Narrowed, by: string): Narrowing[] {
  if (JSON.stringify(parent.network) === JSON.stringify(child.network)) return [];
  return [{ by, kind: "network", from: parent.network, to: child.network }];
}

function lostSecrets({ secrets: from = [] }: Sandbox, { secrets: to = [] }: Narrowed, by: string): Narrowing[] {
  return from.length === to.length ? [] : [{ by, kind: "secrets", from, to }];
}

function lostLimits(parent: Sandbox, child: Narrowed, by: string): Narrowing[] {
  return LIMIT_NAMES.flatMap((limit): Narrowing[] => {
    const [from, to] = [parent.limits[limit] ?? null, child.limits[limit] ?? null];
    return to === null || from === to ? [] : [{ by, kind: "limit", limit, from, to }];
  });
}

function lostPolicy(parent: Sandbox, child: Narrowed, by: string): Narrowing[] {
  if (parent.policy.name === child.policy.name) return [];
  return [{ by, kind: "policy", from: parent.policy.name, to: child.policy.name }];
}
