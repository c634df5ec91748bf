import posix from "node:path/posix";
import { canonicalMounts, governingMount } from "../../sandbox/access.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { joinVirtual } from "../../sandbox/virtual-path.ts";

/*
 * A project's own files say what the next run may do. A worker that can write them grants itself what it likes, one run
 * later; so no worker writes them. What protects them is the mount at the first step below the writable one: it needs no folder
 * that is held in its place, and it also protects what is added beside them.
 */

/** Takes the project's own files out of what the root form lets workers write: each is a read-only mount of its own. */
export function withOwnFilesReadOnly(mounts: readonly Mount[], ownFiles: readonly string[]): readonly Mount[] {
  const shields = mounts
    .filter((mount) => mount.mode === "rw")
    .flatMap((mount) => ownFiles.flatMap((file) => shieldOf(mount, file) ?? []));
  return canonicalMounts([...mounts, ...new Map(shields.map((shield) => [shield.path, shield])).values()]);
}

/** Every writable mount through which the project's own files could be changed. */
export function exposedOwnFiles(sandbox: Sandbox, ownFiles: readonly string[]): Violation[] {
  return sandbox.mounts
    .filter((mount) => mount.mode === "rw" && ownFiles.some((file) => isExposed(sandbox, mount, file)))
    .map(({ path }) => ({
      code: "MOUNT_SOURCE_REFUSED",
      path,
      reason:
        "a worker that writes there could change the project's own corral.yaml, workers, policies or lock files; mount it read-only",
    }));
}

function isExposed(sandbox: Sandbox, mount: Mount, file: string): boolean {
  if (holds(file, originOf(mount))) return true;
  const shield = shieldOf(mount, file);
  if (shield === null) return false;
  const governing = governingMount(sandbox, shield.path);
  // If another mount is there, the worker does not see the project's file at all.
  return governing === mount || (governing?.mode === "rw" && originOf(governing) === shield.host);
}

/** The read-only mount that would protect `file` below `mount`; null if the file is not below it. */
function shieldOf(mount: Mount, file: string): Mount | null {
  const origin = originOf(mount);
  if (origin === file || !holds(origin, file)) return null;
  const [first = ""] = posix.relative(origin, file).split("/");
  const { view: _, ...shown } = mount;
  return { ...shown, path: joinVirtual(mount.path, first), host: posix.join(origin, first), mode: "ro" };
}

function holds(outer: string, inner: string): boolean {
  return outer === inner || inner.startsWith(outer === "/" ? "/" : `${outer}/`);
}
