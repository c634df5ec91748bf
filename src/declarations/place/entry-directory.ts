import fs from "node:fs";
import posix from "node:path/posix";
import { governingMount } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { below, type VirtualPath } from "../../sandbox/virtual-path.ts";

/**
 * The directory that an allowlist entry means: itself, or the one around it if it is a file.
 *
 * No link below the mount is followed, since a worker may have planted it: such an entry stays as it is, and is
 * refused when it is opened. What does not exist yet stays as it is too.
 */
export function directoryOf(parent: Pick<Sandbox, "mounts">, path: VirtualPath): VirtualPath {
  const mount = governingMount(parent, path);
  const parts = mount === undefined ? [] : (below(mount.path, path) ?? "").split("/").filter((part) => part !== "");
  let host = mount?.host ?? "";
  for (const [index, part] of parts.entries()) {
    host = posix.join(host, part);
    const found = entryAt(host);
    if (found === null || found.isSymbolicLink()) return path;
    const last = index === parts.length - 1;
    if (!found.isDirectory()) return last ? (posix.dirname(path) as VirtualPath) : path;
  }
  return path;
}

/** Null if nothing is known to be there. One call for a name takes microseconds; to have another thread do it costs more. */
function entryAt(host: string): fs.Stats | null {
  try {
    return fs.lstatSync(host, { throwIfNoEntry: false }) ?? null;
  } catch {
    return null;
  }
}
