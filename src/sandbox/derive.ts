import { canonicalMounts, hostPathOf, isShown, mountNames, readablePaths, select, writablePaths } from "./access.ts";
import { type Narrowing, whoTookReading, whoTookWriting } from "./ancestry.ts";
import { type ApprovalRules, CHANGES, consentOf, OPERATIONS, type Operation } from "./approval.ts";
import { deriveCeilings } from "./declare.ts";
import { type Grant, type Granted, type GrantedMount, openGrants, stagingOf } from "./expand.ts";
import { LIMIT_NAMES } from "./limits.ts";
import type { Mount } from "./mount.ts";
import { openAllowlists, openPaths } from "./path-needs.ts";
import { type Derivation, declaredBy, type Needs, type Sandbox, withheldApart, type ZoneNeed } from "./sandbox.ts";
import { deriveSecrets } from "./secret-needs.ts";
import type { Violation } from "./violation.ts";
import { ROOT, type VirtualPath } from "./virtual-path.ts";

/** The child's sandbox: what `needs` asks of `parent`, or every reason why not. Pure. */
export function derive(given: Sandbox, needs: Needs, child: string): Derivation {
  // What waits for the user's consent may be asked for as well: it is apart in the child too.
  const parent = declaredBy(given);
  const files = openFiles(parent, needs);
  const { network, limits, policy, violations } = deriveCeilings(parent, needs);
  const secrets = deriveSecrets(parent, needs.secrets ?? [], policy);
  const mounts = canonicalMounts(files.mounts.map(({ mount }) => mount));
  const refused = [
    ...readonlyEscalation(parent, needs),
    // If files were refused, the mounts are not those that were asked for: a check of the directory would mislead.
    ...(files.violations.length > 0 ? files.violations : unseenWorkingDir(mounts, needs)),
    ...violations,
    ...secrets.violations,
  ];
  if (refused.length > 0) return { ok: false, violations: withoutRepeats(refused) };

  const sandbox = {
    chain: [...parent.chain, child],
    mounts,
    workingDir: needs.workingDir ?? ROOT,
    network,
    ...secrets.given,
    limits,
    policy,
    // Mounts that a worker names itself make a namespace of their own, in which `/` is no mount.
    rooted: parent.rooted && needs.paths === undefined,
  };
  const narrowings = [...parent.narrowings, ...narrowingsOf(parent, sandbox, files.mounts, child)];
  return { ok: true, sandbox: { ...sandbox, ...withheldApart(mounts), narrowings } };
}

/** A worker asks for files in exactly one way. Without any it gets none. */
function openFiles(parent: Sandbox, needs: Needs): Granted {
  if (needs.zones !== undefined) return openZones(parent, needs.zones, needs);
  if (needs.paths !== undefined) return openPaths(parent, needs.paths, needs);
  return openAllowlists(parent, needs);
}

/** `readonly: false` asks for something writable, which a read-only parent cannot give. */
function readonlyEscalation(parent: Sandbox, needs: Needs): Violation[] {
  const bringsItsOwn = needs.paths !== undefined && parent.ownPaths;
  if (needs.readonly !== false || bringsItsOwn || parent.mounts.length === 0) return [];
  if (parent.mounts.some((mount) => mount.mode === "rw")) return [];
  return [{ code: "READONLY_ESCALATION", by: whoTookWriting(parent, ROOT) }];
}

/** A cell cannot start in a directory that it does not have. */
function unseenWorkingDir(mounts: readonly Mount[], { workingDir = ROOT }: Needs): Violation[] {
  if (isShown({ mounts }, workingDir)) return [];
  return [{ code: "WORKING_DIR_NOT_AVAILABLE", asked: workingDir, valid: readablePaths({ mounts }) }];
}

function withoutRepeats(violations: readonly Violation[]): Violation[] {
  return [...new Map(violations.map((violation) => [JSON.stringify(violation), violation])).values()];
}

/** `zones`: mounts of the project by name, as far as the parent still has them. */
function openZones(parent: Sandbox, zones: readonly ZoneNeed[], needs: Needs): Granted {
  const grants: Grant[] = [];
  const violations: Violation[] = [];
  for (const zone of zones) {
    const write = zone.mode === "rw" && !needs.readonly;
    const places = parent.mounts.filter((mount) => mount.name === zone.name).map((mount) => mount.path);
    grants.push(...places.map((prefix) => ({ prefix, write, approval: zone.approval, staging: stagingOf(zone) })));
    if (places.length === 0) violations.push(notAvailable(parent, zone.name));
    else if (write) violations.push(...whyNotWritable(parent, places));
  }
  const opened = openGrants(parent, grants, needs);
  return { mounts: opened.mounts, violations: [...violations, ...opened.violations] };
}

function notAvailable(parent: Sandbox, name: string): Violation {
  const by = whoTookReading(parent, `/${name}` as VirtualPath);
  return { code: "MOUNT_NOT_AVAILABLE", asked: name, by, valid: mountNames(parent) };
}

/** A request to write all of a zone is refused if any part of it is read-only: half of what was asked would surprise later. */
function whyNotWritable(parent: Sandbox, places: readonly VirtualPath[]): Violation[] {
  const fixed = places.flatMap((place) => select(parent, place)).find((mount) => mount.mode === "ro");
  if (fixed === undefined) return [];
  const by = whoTookWriting(parent, fixed.path);
  return [{ code: "WRITE_NOT_AVAILABLE", asked: fixed.path, has: "ro", by, valid: writablePaths(parent) }];
}

/** A child's sandbox without the record of what it lost. */
export type Narrowed = Omit<Sandbox, "narrowings">;

/** What `child` lost compared with `parent`, for `explain` and for violations, which name who took a thing away. */
function narrowingsOf(parent: Sandbox, child: Narrowed, granted: readonly GrantedMount[], by: string): Narrowing[] {
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
  const said = (approval: ApprovalRules | undefined, operation: Operation) =>
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
