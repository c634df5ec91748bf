import posix from "node:path/posix";
import { present } from "../text/present.ts";
import {
  canonicalMounts,
  governingMount,
  hostPathOf,
  isShown,
  mountNames,
  readablePaths,
  select,
  writablePaths,
} from "./access.ts";
import { type Narrowing, whoTookConstraint, whoTookReading, whoTookWriting } from "./ancestry.ts";
import { type ApprovalRules, ASK, CHANGES, consentOf, OPERATIONS, type Operation } from "./approval.ts";
import { deriveCeilings, deriveRoot, deriveSecrets, withoutGrantable } from "./declare.ts";
import {
  consentFor,
  type Grant,
  type Granted,
  type GrantedMount,
  meetConstraints,
  openGrants,
  stagingOf,
} from "./expand.ts";
import { LIMIT_NAMES } from "./limits.ts";
import { canonicalSuffixes, type Mount, originOf } from "./mount.ts";
import {
  type Derivation,
  declaredBy,
  type Needs,
  type PathNeed,
  type Sandbox,
  withheldApart,
  type ZoneNeed,
} from "./sandbox.ts";
import type { GivenPlace, Violation } from "./violation.ts";
import { below, joinVirtual, ROOT, type VirtualPath } from "./virtual-path.ts";

/** The child's sandbox: what `needs` asks of `parent`, or every reason why not. Pure. */
export function derive(given: Sandbox, needs: Needs, child: string): Derivation {
  // What waits for the user's consent may be asked for as well: it is apart in the child too.
  const parent = declaredBy(given);
  const files = openFiles(parent, needs);
  const { network, limits, policy, violations } = deriveCeilings(parent, needs);
  const secrets = deriveSecrets(parent, needs.secrets ?? [], policy);
  const root = deriveRoot(parent, needs, policy);
  const mounts = canonicalMounts(files.mounts.map(({ mount }) => withoutGrantable(mount)));
  const refused = [
    ...readonlyEscalation(parent, needs),
    // If files were refused, the mounts are not those that were asked for: a check of the directory would mislead.
    ...(files.violations.length > 0 ? files.violations : unseenWorkingDir(mounts, needs)),
    ...violations,
    ...secrets.violations,
    ...root.violations,
  ];
  if (refused.length > 0) return { ok: false, violations: withoutRepeats(refused) };

  const sandbox = {
    chain: [...parent.chain, child],
    mounts,
    workingDir: needs.workingDir ?? ROOT,
    network,
    ...secrets.given,
    ...root.given,
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
  const { mounts, violations } = openedAsAsked(parent, needs);
  if (needs.suffixes === undefined && needs.maxFileBytes === undefined) return { mounts, violations };
  const suffixes = needs.suffixes && canonicalSuffixes(needs.suffixes);
  const only = present({ suffixes, maxFileBytes: needs.maxFileBytes });
  const narrowed = mounts.map(({ mount, source }) => ({
    mount: { ...mount, ...meetConstraints(mount, only) },
    source,
  }));
  return { mounts: narrowed, violations };
}

function openedAsAsked(parent: Sandbox, needs: Needs): Granted {
  if (needs.zones !== undefined) return openZones(parent, needs.zones, needs);
  if (needs.paths !== undefined) return openPaths(parent, needs.paths, needs);
  return openAllowlists(parent, needs);
}

/** `readonly: false` asks for something writable, which a read-only parent cannot give. */
function readonlyEscalation(parent: Sandbox, needs: Needs): Violation[] {
  const bringsItsOwn = needs.paths !== undefined && parent.ownPaths;
  if (needs.readonly !== false || bringsItsOwn) return [];
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
    if (places.length === 0) violations.push(zoneNotAvailable(parent, zone.name));
    else if (write) violations.push(...whyZoneNotWritable(parent, places));
  }
  const opened = openGrants(parent, grants, needs);
  return { mounts: opened.mounts, violations: [...violations, ...opened.violations] };
}

function zoneNotAvailable(parent: Sandbox, name: string): Violation {
  const by = whoTookReading(parent, `/${name}` as VirtualPath);
  return { code: "MOUNT_NOT_AVAILABLE", asked: name, by, valid: mountNames(parent) };
}

/** A request to write all of a zone is refused if any part of it is read-only: half of what was asked would surprise later. */
function whyZoneNotWritable(parent: Sandbox, places: readonly VirtualPath[]): Violation[] {
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

/**
 * `paths`: host directories that the worker itself names, each at `/<name>`. Each must be inside of the caller's mounts, and
 * is then the caller's mount under another path. The caller of a worker that is run by itself is the project. Only a project
 * that says so lets its workers bring directories of their own.
 */
function openPaths(parent: Sandbox, paths: readonly PathNeed[], needs: Needs): Granted {
  const opened = paths.map((need) => (parent.ownPaths ? bring(need, needs) : reroot(parent, need, needs)));
  return {
    mounts: opened.flatMap((granted) => granted.mounts),
    violations: opened.flatMap((granted) => granted.violations),
  };
}

function bring(need: PathNeed, needs: Needs): Granted {
  const source: Mount = { name: need.name, path: ownPlace(need), host: need.host, mode: "rw" };
  const mode = needs.readonly ? "ro" : need.mode;
  const mount = {
    ...source,
    ...constraints(source, need),
    ...stagingOf(need, needs),
    mode,
    approval: need.approval ?? needs.approval ?? ASK,
    own: "brought" as const,
  };
  return { mounts: [{ mount, source }], violations: [] };
}

function ownPlace({ name, at }: PathNeed): VirtualPath {
  return at ?? (`/${name}` as VirtualPath);
}

/** One host directory may be visible in several places; the one with the fewest violations is used. */
function reroot(parent: Sandbox, need: PathNeed, needs: Needs): Granted {
  const attempts = placesOf(parent, need.host).map((place) => rerootAt(parent, place, need, needs));
  const [best] = attempts.sort((a, b) => a.violations.length - b.violations.length);
  if (best !== undefined) return best;
  return { mounts: [], violations: [pathNotAvailable(parent, need)] };
}

function pathNotAvailable(parent: Sandbox, { name }: PathNeed): Violation {
  if (isProject(parent)) return { code: "OWN_PATH_OUTSIDE", asked: name, valid: parent.mounts.map(givenPlace) };
  // Narrowings have no host paths: name the latest worker that dropped any directory.
  const by = parent.narrowings.findLast((n) => n.kind === "mount" && n.to === "none")?.by ?? "project";
  return { code: "MOUNT_NOT_AVAILABLE", asked: name, by, valid: mountNames(parent) };
}

/** True if no other worker calls this one. */
function isProject(parent: Sandbox): boolean {
  return parent.chain.length === 1;
}

function givenPlace({ path, mode, suffixes, maxFileBytes }: Mount): GivenPlace {
  return {
    path,
    mode,
    ...present({ suffixes, maxFileBytes }),
  };
}

/** Where the parent sees a host path: below one of its mounts, and not hidden by another. */
function placesOf(parent: Sandbox, host: string): VirtualPath[] {
  return parent.mounts.flatMap((mount) => {
    const rest = posix.relative(originOf(mount), host);
    if (rest === ".." || rest.startsWith("../")) return [];
    const place = joinVirtual(mount.path, rest);
    return governingMount(parent, place) === mount ? [place] : [];
  });
}

function rerootAt(parent: Sandbox, place: VirtualPath, need: PathNeed, needs: Needs): Granted {
  const write = need.mode === "rw" && !needs.readonly;
  const mounts: GrantedMount[] = [];
  const violations: Violation[] = [];
  for (const source of select(parent, place)) {
    const mode = write && source.mode === "rw" ? "rw" : "ro";
    const consent = consentFor(parent, source, mode, { own: need.approval, blanket: needs.approval });
    const path = joinVirtual(ownPlace(need), below(place, source.path) ?? "");
    const mount: Mount = {
      ...source,
      ...constraints(source, need),
      ...stagingOf(need, needs),
      name: need.name,
      path,
      mode,
      own: source.own ?? "inside",
    };
    mounts.push({ mount: { ...mount, approval: consent.approval }, source });
    violations.push(...whyNot(parent, source, need, write), ...consent.violations);
  }
  return { mounts, violations: violations.map((violation) => ({ ...violation, own: need.name })) };
}

function constraints(source: Mount, need: PathNeed): Pick<Mount, "suffixes" | "maxFileBytes"> {
  const asked = need.suffixes && canonicalSuffixes(need.suffixes);
  const suffixes = asked?.filter((suffix) => source.suffixes?.includes(suffix) ?? true) ?? source.suffixes;
  const sizes = [need.maxFileBytes, source.maxFileBytes].filter((size) => size !== undefined);
  return {
    ...present({ suffixes }),
    ...(sizes.length === 0 ? {} : { maxFileBytes: Math.min(...sizes) }),
  };
}

function whyNot(parent: Sandbox, source: Mount, need: PathNeed, write: boolean): Violation[] {
  const violations: Violation[] = [];
  const { path } = source;
  if (write && source.mode === "ro") {
    const by = whoTookWriting(parent, path);
    violations.push({ code: "WRITE_NOT_AVAILABLE", asked: path, has: "ro", by, valid: writablePaths(parent) });
  }
  const [asked, has] = [need.suffixes && canonicalSuffixes(need.suffixes), source.suffixes];
  if (asked !== undefined && has !== undefined && asked.some((suffix) => !has.includes(suffix))) {
    const by = whoTookConstraint(parent, path, "suffixes");
    violations.push({ code: "SUFFIXES_WIDER", path, asked, has, by });
  }
  const [larger, limit] = [need.maxFileBytes, source.maxFileBytes];
  if (larger !== undefined && limit !== undefined && larger > limit) {
    const by = whoTookConstraint(parent, path, "maxFileBytes");
    violations.push({ code: "FILE_SIZE_LARGER", path, asked: larger, has: limit, by });
  }
  return violations;
}

/** `inherit`, `allow_read` and `allow_write`. With lists, `inherit` adds nothing: the lists say it all. */
function openAllowlists(parent: Sandbox, needs: Needs): Granted {
  const { allowRead, allowWrite, readonly = false } = needs;
  if (allowRead === undefined && allowWrite === undefined) {
    return openGrants(parent, needs.inherit ? [{ prefix: ROOT, write: !readonly }] : [], needs);
  }
  const reads = allowRead ?? allowWrite ?? [];
  const writes = readonly ? [] : (allowWrite ?? []);

  const missing = [...new Set([...reads, ...(allowWrite ?? [])])].filter((path) => select(parent, path).length === 0);
  const violations = missing.map((asked): Violation => {
    const by = whoTookReading(parent, asked);
    return { code: "PATH_NOT_AVAILABLE", asked, by, valid: readablePaths(parent) };
  });
  const grants: Grant[] = reads.map((prefix) => ({ prefix, write: false }));
  for (const asked of writes) {
    if (missing.includes(asked)) continue;
    // What can be written can be read, whatever the read list says; the rest of the entry is the list's.
    const writable = select(parent, asked).filter((mount) => mount.mode === "rw");
    grants.push(...writable.map((mount) => ({ prefix: mount.path, write: true })));
    if (writable.length > 0) continue;
    const by = whoTookWriting(parent, asked);
    violations.push({ code: "WRITE_NOT_AVAILABLE", asked, has: "ro", by, valid: writablePaths(parent) });
  }
  const opened = openGrants(parent, grants, needs);
  return { mounts: opened.mounts, violations: [...violations, ...opened.violations] };
}
