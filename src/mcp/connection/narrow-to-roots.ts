import { holds } from "../../run/grants/source.ts";
import type { Narrow } from "../../run/model/job.ts";
import { governingMount } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, parseVirtualPath, ROOT, type VirtualPath } from "../../sandbox/virtual-path.ts";

/**
 * The part of a sandbox that lies in the roots of a client: directories inside a root, and roots inside a directory.
 * `hosts`: real host directories. Pure.
 *
 * A narrowing can only name paths, and a path includes everything below it. So if a directory of the sandbox contains
 * another one that lies outside the roots, the whole first directory is left out: to show it without the second would
 * show what the second hides.
 */
export function narrowToRoots(sandbox: Sandbox, hosts: readonly string[]): Narrow {
  const isInside = (mount: Mount): boolean => hosts.some((root) => holds(root, mount.host));
  const candidates = sandbox.mounts.flatMap((mount) =>
    isInside(mount) ? [mount.path] : hosts.flatMap((root) => partOf(mount, root, sandbox)),
  );
  const isWhole = (path: VirtualPath): boolean =>
    sandbox.mounts.every((mount) => mount.path === path || !covers(path, mount.path) || isInside(mount));
  const allowRead = [...new Set(candidates)].filter(isWhole);
  const allowWrite = allowRead.filter((path) => governingMount(sandbox, path)?.mode === "rw");
  return { allowRead, allowWrite };
}

/** The place of a root in a mount; none if another mount is there, or if no path can name it. */
function partOf(mount: Mount, root: string, sandbox: Sandbox): VirtualPath[] {
  if (!holds(mount.host, root)) return [];
  const rest = mount.host === "/" ? root.slice(1) : root.slice(mount.host.length + 1);
  const written = `${mount.path === ROOT ? "" : mount.path}/${rest}`;
  const parsed = parseVirtualPath(written);
  if (!parsed.ok || parsed.path !== written || governingMount(sandbox, parsed.path) !== mount) return [];
  return [parsed.path];
}
