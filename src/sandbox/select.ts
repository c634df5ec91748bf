import { governingMount, hostBelow } from "./access.ts";
import type { Mount } from "./mount.ts";
import type { Sandbox } from "./sandbox.ts";
import { comparePaths, covers, type VirtualPath } from "./virtual-path.ts";

type Mounted = Pick<Sandbox, "mounts">;

/**
 * What a sandbox shows at and below `prefix`: the mount that governs it, carved to it, and all that stand strictly
 * below. Every form of asking for files is built on this one operation. Those below always come along, since a mount
 * may hide what the one above it would show there.
 */
export function select(sandbox: Mounted, prefix: VirtualPath): Mount[] {
  const governing = governingMount(sandbox, prefix);
  const inside = sandbox.mounts.filter((mount) => mount.path !== prefix && covers(prefix, mount.path));
  return governing === undefined ? inside : [carve(governing, prefix), ...inside];
}

/** The same place of the host, seen from further down; the name and every constraint stay. */
export function carve(mount: Mount, path: VirtualPath): Mount {
  const { view } = mount;
  const carved = { ...mount, path, host: hostBelow(mount, path) };
  return view === undefined
    ? carved
    : { ...carved, view: { ...view, origin: hostBelow({ ...mount, host: view.origin }, path) } };
}

/** Sorted by path, none twice, and none that changes nothing compared with the one above it. */
export function canonicalMounts(mounts: readonly Mount[]): Mount[] {
  const kept: Mount[] = [];
  for (const mount of [...mounts].sort((a, b) => comparePaths(a.path, b.path))) {
    const above = governingMount({ mounts: kept }, mount.path);
    if (above === undefined || (above.path !== mount.path && !isContinuation(above, mount))) kept.push(mount);
  }
  return kept;
}

function isContinuation(above: Mount, mount: Mount): boolean {
  return (
    mount.host === hostBelow(above, mount.path) &&
    mount.name === above.name &&
    mount.mode === above.mode &&
    mount.maxFileBytes === above.maxFileBytes &&
    mount.stage === above.stage &&
    mount.discard === above.discard &&
    mount.granted === above.granted &&
    mount.suffixes?.join("/") === above.suffixes?.join("/") &&
    mount.approval?.write === above.approval?.write &&
    mount.approval?.delete === above.approval?.delete
  );
}
