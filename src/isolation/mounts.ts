import { join } from "node:path/posix";
import type { Mount } from "../sandbox/mount.ts";
import type { Violation } from "../sandbox/violation.ts";
import {
  ATTACHMENTS_PATH,
  GATE_PATH,
  type PlannedMount,
  ROOTED_BASE,
  SOCKET_PATH,
  type SourceIdentity,
} from "./plan.ts";
import type { PlanRequest } from "./plan-for.ts";

/** What a pinned mount source is, as its descriptor says. */
export interface PlannedSource extends SourceIdentity {
  readonly kind: "directory" | "file" | "socket";
  readonly uid: number;
  readonly gid: number;
}

/** Directories of a cell that a mount would hide: the system's own and Corral's. */
const RESERVED = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc root run sbin sys tmp usr var attachments .corral".split(" "),
);

/** Every bind mount of the cell, shallow ones first, so that a mount below another is made on top of it. */
export function planMounts(request: PlanRequest, violations: Violation[]): PlannedMount[] {
  const base = request.sandbox.rooted ? ROOTED_BASE : "";
  const mounts: PlannedMount[] = [];
  for (const mount of request.sandbox.mounts) {
    const path = mount.path === "/" ? base : base + mount.path;
    if (path === "" || RESERVED.has(path.split("/")[1] ?? "")) {
      violations.push({ code: "MOUNT_RESERVED", path: mount.path });
      continue;
    }
    const constraint = unenforceable(mount);
    if (constraint !== null) {
      violations.push({ code: "CONSTRAINT_NOT_ENFORCEABLE", path: mount.path, constraint });
      continue;
    }
    const heldBack = mount.mode === "rw" && !isPreApproved(mount);
    mounts.push({
      ...bindOf(request, path, mount.host),
      mode: mount.mode === "rw" && !heldBack ? "rw" : "ro",
      origin: "sandbox",
      ...(heldBack ? { heldBack: "approval" as const } : {}),
    });
  }
  refuseForeignNesting(mounts, violations);
  for (const { name, host } of request.attachments) {
    mounts.push({ ...bindOf(request, join(ATTACHMENTS_PATH, name), host), mode: "ro", origin: "attachment" });
  }
  for (const [path, host] of [
    [GATE_PATH, request.plumbing.gate],
    [SOCKET_PATH, request.plumbing.socket],
  ] as const) {
    mounts.push({ ...bindOf(request, path, host), mode: "ro", origin: "corral" });
  }
  return mounts.sort((a, b) => depth(a.path) - depth(b.path) || (a.path < b.path ? -1 : 1));
}

/**
 * A bind mount knows no suffixes and no sizes: through it a command could read what `read_file` refuses. Such a
 * mount is refused until it can be staged, for the validator and the kernel must agree (design section 4).
 */
function unenforceable(mount: Mount): string | null {
  if (mount.suffixes !== undefined) return `suffixes ${mount.suffixes.join(", ")}`;
  if (mount.maxFileBytes !== undefined) return `files of at most ${mount.maxFileBytes} bytes`;
  return null;
}

/**
 * A mount below another needs a place to stand. Where both lead to the same host tree it is there; elsewhere the
 * Engine would make the directory on the host, as root, so such a mount is refused.
 */
function refuseForeignNesting(mounts: readonly PlannedMount[], violations: Violation[]): void {
  for (const mount of mounts) {
    for (const outer of mounts) {
      if (outer === mount || !mount.path.startsWith(`${outer.path}/`)) continue;
      if (mount.host !== outer.host + mount.path.slice(outer.path.length)) {
        violations.push({ code: "MOUNT_RESERVED", path: mount.path });
      }
    }
  }
}

/** Writable for a command only where no write and no delete has to be asked for, as `exec` must not get round `write_file`. */
function isPreApproved(mount: Mount): boolean {
  return mount.approval?.write === "preApproved" && mount.approval.delete === "preApproved";
}

function bindOf(
  request: PlanRequest,
  path: string,
  host: string,
): Pick<PlannedMount, "path" | "host" | "kind" | "identity"> {
  const source = request.sources.get(host);
  if (source === undefined) throw new Error(`planFor was given no facts of the source of ${path}`);
  return { path, host, kind: source.kind, identity: { device: source.device, inode: source.inode } };
}

function depth(path: string): number {
  return path.split("/").length;
}
