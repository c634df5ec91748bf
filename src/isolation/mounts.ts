import { join } from "node:path/posix";
import type { Mount } from "../sandbox/mount.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import {
  ATTACHMENTS_PATH,
  GATE_PATH,
  OUTPUT_PATH,
  type PlannedMount,
  ROOTED_BASE,
  SOCKET_PATH,
  type SourceIdentity,
} from "./plan.ts";

/** What a pinned mount source is, as its descriptor says. */
export interface PlannedSource extends SourceIdentity {
  readonly kind: "directory" | "file" | "socket";
  readonly uid: number;
  readonly gid: number;
}

/** What mounts are planned from. */
export interface MountRequest {
  readonly sandbox: Sandbox;
  /** Facts of every host path that will be mounted, by host path. */
  readonly sources: ReadonlyMap<string, PlannedSource>;
  readonly attachments: readonly { readonly name: string; readonly host: string }[];
  /** Corral's own on the host: the gate's binary, this run's socket, and of a session the directory of what its commands print. */
  readonly plumbing: { readonly gate: string; readonly socket: string; readonly output?: string };
}

/** Directories of a cell that a mount would hide: the system's own and Corral's. */
const RESERVED = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc root run sbin sys tmp usr var attachments .corral".split(" "),
);

/** Every bind mount of the cell, shallow ones first, so that a mount below another is made on top of it. */
export function planMounts(request: MountRequest, violations: Violation[]): PlannedMount[] {
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
  const { gate, socket, output } = request.plumbing;
  const own = [
    [GATE_PATH, gate],
    [SOCKET_PATH, socket],
    ...(output === undefined ? [] : [[OUTPUT_PATH, output] as const]),
  ] as const;
  for (const [path, host] of own) {
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
  request: MountRequest,
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
