import posix from "node:path/posix";
import { governingMount, mountNames, readablePaths, select, writablePaths } from "./access.ts";
import { whoTookConstraint, whoTookReading, whoTookWriting } from "./ancestry.ts";
import { ASK } from "./approval.ts";
import { consentFor, type Grant, type Granted, type GrantedMount, openGrants, stagingOf } from "./expand.ts";
import { canonicalSuffixes, type Mount, originOf } from "./mount.ts";
import type { Needs, PathNeed, Sandbox } from "./sandbox.ts";
import type { GivenPlace, Violation } from "./violation.ts";
import { below, covers, joinVirtual, ROOT, type VirtualPath } from "./virtual-path.ts";

/**
 * `paths`: host directories that the worker itself names, each at `/<name>`. Each must be inside of the caller's mounts, and
 * is then the caller's mount under another path. The caller of a worker that is run by itself is the project. Only a project
 * that says so lets its workers bring directories of their own.
 */
export function openPaths(parent: Sandbox, paths: readonly PathNeed[], needs: Needs): Granted {
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
  return { mounts: [], violations: [notAvailable(parent, need)] };
}

function notAvailable(parent: Sandbox, { name }: PathNeed): Violation {
  if (isProject(parent)) return { code: "OWN_PATH_OUTSIDE", asked: name, valid: parent.mounts.map(placeOf) };
  // Narrowings have no host paths: name the latest worker that dropped any directory.
  const by = parent.narrowings.findLast((n) => n.kind === "mount" && n.to === "none")?.by ?? "project";
  return { code: "MOUNT_NOT_AVAILABLE", asked: name, by, valid: mountNames(parent) };
}

/** True if no other worker calls this one. */
function isProject(parent: Sandbox): boolean {
  return parent.chain.length === 1;
}

function placeOf({ path, mode, suffixes, maxFileBytes }: Mount): GivenPlace {
  return {
    path,
    mode,
    ...(suffixes === undefined ? {} : { suffixes }),
    ...(maxFileBytes === undefined ? {} : { maxFileBytes }),
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
    ...(suffixes === undefined ? {} : { suffixes }),
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
export function openAllowlists(parent: Sandbox, needs: Needs): Granted {
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
    // A write entry opens only what is writable: the rest of it may be outside of the read list.
    const writable = select(parent, asked).filter((mount) => mount.mode === "rw");
    grants.push(...writable.map((mount) => ({ prefix: mount.path, write: true })));
    violations.push(
      ...whyNotWritable(
        parent,
        asked,
        writable.map((mount) => mount.path),
        reads,
      ),
    );
  }
  const opened = openGrants(parent, grants, needs);
  return { mounts: opened.mounts, violations: [...violations, ...opened.violations] };
}

function whyNotWritable(
  parent: Sandbox,
  asked: VirtualPath,
  writable: readonly VirtualPath[],
  reads: readonly VirtualPath[],
): Violation[] {
  if (writable.length === 0) {
    const by = whoTookWriting(parent, asked);
    return [{ code: "WRITE_NOT_AVAILABLE", asked, has: "ro", by, valid: writablePaths(parent) }];
  }
  const readable = writable.every((path) => reads.some((prefix) => covers(prefix, path)));
  return readable ? [] : [{ code: "WRITE_NOT_READABLE", asked, valid: [...reads] }];
}
