import { canonicalMounts, carve, governingMount } from "./access.ts";
import type { Narrowing } from "./ancestry.ts";
import { type Approval, ASK, consentOf, type Operation, strictest, strictOf } from "./approval.ts";
import { type Mode, type Mount, originOf } from "./mount.ts";
import { isReserved } from "./reserved.ts";
import type { Sandbox } from "./sandbox.ts";
import { stagingOf } from "./staging.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";
import { withheldApart } from "./withheld.ts";

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
const GRANTED: Approval = { write: "pre_approved", delete: "ask" };

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
  const mode: Mode = grant.mode === "write" ? shown.mode : "ro";
  const approval = mode === "rw" ? consentIn(shown) : readable(shown.approval);
  return { ...shown, mode, approval, granted: grant.id };
}

/** The source's mount, whose view can be written. The constraints of the worker's own mount stay. */
function upgraded(had: Mount, shown: Mount, grant: DirectoryGrant): Mount {
  const { suffixes: _, maxFileBytes: __, ...place } = shown;
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
    ...(suffixes === undefined ? {} : { suffixes }),
    ...(sizes.length === 0 ? {} : { maxFileBytes: Math.min(...sizes) }),
  };
}

type Constraints = Pick<Mount, "suffixes" | "maxFileBytes">;

/** The user agreed to read it. `blocked` is never loosened. */
function readable(approval: Approval = ASK): Approval {
  const { read, ...rest } = approval;
  return read === "blocked" ? approval : rest;
}

/** `blocked` is never loosened, by any approval. */
function consentIn(...mounts: readonly Mount[]): Approval {
  const blocked = (operation: Operation): boolean => mounts.some(({ approval }) => approval?.[operation] === "blocked");
  const call = strictest(...mounts.map(({ approval }) => consentOf(approval, "call")));
  return {
    ...strictOf({ ...(blocked("read") ? { read: "blocked" } : {}), call }),
    write: blocked("write") ? "blocked" : GRANTED.write,
    delete: blocked("delete") ? "blocked" : GRANTED.delete,
  };
}
