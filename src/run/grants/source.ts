import posix from "node:path/posix";
import { consentOf, type Operation, strictest, strictOf } from "../../sandbox/approval.ts";
import { meetConstraints, stagingOf } from "../../sandbox/expand.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";

type Mounted = Pick<Sandbox, "mounts">;

/**
 * What a host directory is before it is granted: all of it, readable and writable, except for what is already said
 * about a place of it. A suffix, a size, a side or a block that holds under one name holds under every other, and what
 * the project only gives for reading stays so; of what workers have, the modes do not matter, for those are what is asked.
 */
export function hostSource(host: string, at: VirtualPath, project: Mounted, workers: readonly Mounted[]): Mount[] {
  const known = [project, ...workers.map(withoutModes)];
  const places = known.flatMap(({ mounts }) => mounts.map(originOf)).filter((origin) => holds(host, origin));
  return [...new Set([host, ...places])].sort().map((place): Mount => {
    const path = joinVirtual(at, posix.relative(host, place));
    const plain: Mount = { name: at, path, host: place, mode: "rw" };
    return known.flatMap((sandbox) => innermost(sandbox, place)).reduce(met, plain);
  });
}

function withoutModes({ mounts }: Mounted): Mounted {
  return { mounts: mounts.map((mount) => ({ ...mount, mode: "rw" })) };
}

/** The mounts that say most closely what a host place is; several may show the same directory. */
function innermost({ mounts }: Mounted, place: string): Mount[] {
  const around = mounts.filter((mount) => holds(originOf(mount), place));
  const deepest = Math.max(...around.map((mount) => originOf(mount).length));
  return around.filter((mount) => originOf(mount).length === deepest);
}

function met(plain: Mount, said: Mount): Mount {
  const isBlocked = (operation: Operation): boolean =>
    [plain, said].some(({ approval }) => approval?.[operation] === "blocked");
  const blocked = (operation: Operation) => (isBlocked(operation) ? "blocked" : "ask");
  const call = strictest(consentOf(plain.approval, "call"), consentOf(said.approval, "call"));
  return {
    ...plain,
    ...meetConstraints(plain, said),
    ...stagingOf(plain, said),
    mode: said.mode === "ro" ? "ro" : plain.mode,
    approval: {
      ...strictOf({ ...(isBlocked("read") ? { read: "blocked" } : {}), call }),
      write: blocked("write"),
      delete: blocked("delete"),
    },
  };
}

/** True if `inner` is `outer` or lies below it. */
export function holds(outer: string, inner: string): boolean {
  return outer === inner || inner.startsWith(outer === "/" ? "/" : `${outer}/`);
}
