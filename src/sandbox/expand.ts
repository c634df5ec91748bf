import { canonicalMounts, carve, governingMount } from "./access.ts";
import type { Narrowing } from "./ancestry.ts";
import { type Approval, ASK } from "./approval.ts";
import { type Mode, type Mount, originOf } from "./mount.ts";
import { isReserved } from "./reserved.ts";
import type { Sandbox } from "./sandbox.ts";
import { stagingOf } from "./staging.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

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
}

/** A granted write: further writes need no question, a deletion still does, because it cannot be undone. */
const GRANTED: Approval = { write: "pre_approved", delete: "ask" };

/**
 * A new sandbox with one more directory, or with a directory that is now writable; nothing else differs. `source` comes from
 * the root of the tree, or from a parent that was expanded before. Pure.
 */
export function expand(sandbox: Sandbox, grant: DirectoryGrant): Sandbox {
  if (isReserved(grant.path, sandbox)) throw new RangeError(`nothing can be granted at ${grant.path}`);
  const isInside = ({ path }: Mount): boolean => covers(grant.path, path);
  const source = grant.source.filter(isInside);
  // Only at these places can the mounts of the sandbox or of the source begin or end.
  const places = new Set([grant.path, ...[...sandbox.mounts.filter(isInside), ...source].map((mount) => mount.path)]);
  const inside = [...places].flatMap((path) => mountAt(path, sandbox, source, grant) ?? []);
  const mounts = canonicalMounts([...sandbox.mounts.filter((mount) => !isInside(mount)), ...inside]);
  if (JSON.stringify(mounts) === JSON.stringify(sandbox.mounts)) return sandbox;
  const told: Narrowing = {
    by: grant.by,
    kind: "grant",
    path: grant.path,
    from: governingMount(sandbox, grant.path) === undefined ? "none" : "ro",
    to: governingMount({ mounts }, grant.path)?.mode ?? "ro",
  };
  return { ...sandbox, mounts, narrowings: [...sandbox.narrowings, told] };
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
  const mode: Mode = grant.mode === "write" ? shown.mode : "ro";
  const approval = mode === "rw" ? consentIn(shown) : (shown.approval ?? ASK);
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

/** `blocked` is never loosened, by any approval. */
function consentIn(...mounts: readonly Mount[]): Approval {
  const blocked = (operation: keyof Approval): boolean =>
    mounts.some(({ approval }) => approval?.[operation] === "blocked");
  return {
    write: blocked("write") ? "blocked" : GRANTED.write,
    delete: blocked("delete") ? "blocked" : GRANTED.delete,
  };
}
