import { join } from "node:path/posix";
import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { below, isReserved, ROOT, ROOTED_BASE } from "../../sandbox/virtual-path.ts";
import {
  ATTACHMENTS_PATH,
  COMMANDS_PATH,
  environmentMounts,
  GATE_PATH,
  HOSTS_PATH,
  OUTPUT_PATH,
  type Plan,
  type PlannedEnvironment,
  type PlannedMount,
  type PlannedTmpfs,
  refuseHiddenEnvironments,
  SOCKET_PATH,
  type SourceIdentity,
} from "./plan.ts";

/** A place in the root file system of a cell at which something is mounted. */
export interface MountPoint {
  readonly path: string;
  readonly kind: "directory" | "file";
}

/** What an image has where a cell needs a mount point, or a directory on the way to one. */
export interface InTheWay {
  readonly path: string;
  readonly is: EntryNoun;
}
export type EntryNoun = "a symbolic link" | "a directory" | "a file" | "a device" | "a FIFO" | "a socket";

/** Files of every cell. */
const NAME_PATHS: readonly string[] = [HOSTS_PATH, "/etc/resolv.conf", "/etc/hostname"];
const KERNEL_PATHS = ["/proc", "/sys", "/dev"];

/** The mount points of a cell that are in its root file system and in no other mount, shallow ones first. */
export function mountPointsOf({ mounts, tmpfs }: Pick<Plan, "mounts" | "tmpfs">, others: readonly MountPoint[] = []) {
  const all = new Map<string, MountPoint>();
  const add = (path: string, kind: MountPoint["kind"]): void => void all.set(path, { path, kind });
  for (const path of KERNEL_PATHS) add(path, "directory");
  for (const path of NAME_PATHS) add(path, "file");
  for (const { path } of tmpfs) add(path, "directory");
  for (const { path, kind } of mounts) add(path, kind === "directory" ? kind : "file");
  for (const { path, kind } of others) add(path, kind);
  return [...all.values()]
    .filter(({ path }) => !directoriesAbove(path).some((above) => all.has(above)))
    .sort((a, b) => directoriesAbove(a.path).length - directoriesAbove(b.path).length);
}

/** The outermost first, without the root itself. */
export function directoriesAbove(path: string): string[] {
  const names = path.split("/").slice(1, -1);
  return names.map((_, at) => `/${names.slice(0, at + 1).join("/")}`);
}

/** A mount would be made where the entry leads, or not at all. */
export function refusalOfEntries({ image }: Pick<Plan, "image">, entries: readonly InTheWay[]): Violation {
  const texts = entries.map(({ path, is }) => `it has ${is} at ${path}`);
  const reason = `${texts.join(" and ")}, where the cell needs ${NEEDED(entries)} of its own`;
  return { code: "IMAGE_REFUSED", image: image.name, reason };
}

const NEEDED = (entries: readonly InTheWay[]): string =>
  entries.some(({ is }) => is !== "a directory") ? "a directory or a file" : "a file";

/** What a pinned mount source is, as its descriptor says. */
export interface PlannedSource extends SourceIdentity {
  readonly kind: "directory" | "file" | "socket";
  readonly uid: number;
  readonly gid: number;
}

/** For a serving cell, two directories of Corral's own on the host: an item's input and output, and its attachments. */
export interface ItemPlumbing {
  readonly io: string;
  readonly attachments: string;
}

/** A file of Corral's own: its path in the cell, and what it is on the host. */
export interface OwnFile {
  readonly path: string;
  readonly host: string;
  readonly source: PlannedSource;
}

/** What mounts are planned from. */
export interface MountRequest {
  readonly sandbox: Sandbox;
  /** Facts of every host path that will be mounted, by host path; also those of {@link sandboxAnchors}. */
  readonly sources: ReadonlyMap<string, PlannedSource>;
  /**
   * The mounts that are views already, by their virtual paths; `would-be` if nothing runs: every mount that needs a view
   * counts as one.
   */
  readonly views: ReadonlySet<string> | "would-be";
  readonly attachments: readonly (Pick<Mount, "host" | "view"> & { readonly name: string })[];
  /**
   * Corral's own files on the host: the gate's binary, this run's socket, and for a session the directory of its commands'
   * output. A cell that serves items has no socket: what an item sends to it would outlive the item.
   */
  readonly plumbing: {
    readonly gate: string;
    readonly socket?: string;
    /** Of a cell with an allow list: what leads its programs to the hosts. */
    readonly files?: readonly OwnFile[];
    /** Names of its services, which are in these files. */
    readonly services?: readonly string[];
    readonly output?: string;
    /** Of a session whose first process starts its commands: the directory of their pipes. */
    readonly commands?: string;
    readonly items?: ItemPlumbing;
    readonly environments?: readonly PlannedEnvironment[];
    /** The directories of a writable root. */
    readonly root?: readonly Pick<PlannedMount, "path" | "host">[];
  };
}

/** Every bind mount of the cell, shallow ones first, so that a mount below another is mounted on top of it. */
export function planMounts(request: MountRequest, violations: Violation[]): PlannedMount[] {
  const base = request.sandbox.rooted ? ROOTED_BASE : "";
  const mounts: PlannedMount[] = [];
  for (const mount of request.sandbox.mounts) {
    const path = mount.path === "/" ? base : base + mount.path;
    if (mount.path === ROOT ? path === "" : isReserved(mount.path, request.sandbox)) {
      violations.push({ code: "MOUNT_RESERVED", path: mount.path });
      continue;
    }
    const bind = { ...bindOf(request, path, mount.host), ...shownByView(mount) };
    mounts.push({ ...bind, ...asDelivered(mount, request.views), origin: "sandbox" });
  }
  refuseForeignNesting(request.sandbox, violations);
  for (const attachment of request.attachments) {
    const bind = bindOf(request, join(ATTACHMENTS_PATH, attachment.name), attachment.host);
    mounts.push({ ...bind, ...shownByView(attachment), mode: "ro", origin: "attachment" });
  }
  const { gate, socket, files = [], output, commands, items, environments = [], root = [] } = request.plumbing;
  refuseHiddenEnvironments(environments, request.sandbox, violations);
  const own: [path: string, host: string, mode?: "rw"][] = [
    [GATE_PATH, gate],
    ...(socket === undefined ? [] : [[SOCKET_PATH, socket] as [string, string]]),
    ...(output === undefined ? [] : [[OUTPUT_PATH, output] as [string, string]]),
    ...(commands === undefined ? [] : [[COMMANDS_PATH, commands] as [string, string]]),
    ...(items === undefined ? [] : itemMounts(items)),
    ...environmentMounts(environments),
  ];
  for (const [path, host, mode = "ro"] of own) {
    mounts.push({ ...bindOf(request, path, host), mode, origin: "corral" });
  }
  for (const { path, host } of root)
    mounts.push({ ...bindOf(request, path, host), mode: "rw", staged: true, origin: "root" });
  for (const file of files) {
    // The Engine would make its mount point on the host, as root.
    const outer = mounts.find((mount) => mount.origin === "sandbox" && file.path.startsWith(`${mount.path}/`));
    if (outer !== undefined) violations.push({ code: "MOUNT_RESERVED", path: outer.path });
    else mounts.push(ownFileMount(file));
  }
  const anchors = anchorsOf(mounts);
  const unheld = anchors[MAX_ANCHORS];
  if (unheld !== undefined) violations.push({ code: "MOUNT_RESERVED", path: unheld.holds, because: "depth" });
  else mounts.push(...anchors.map((anchor) => anchorMount(request, anchor)));
  return inOrder(mounts);
}

/** A mount below another one is made later. */
export function inOrder(mounts: readonly PlannedMount[]): PlannedMount[] {
  return mounts.toSorted((a, b) => depth(a.path) - depth(b.path) || (a.path < b.path ? -1 : 1));
}

function shownByView(mount: Pick<Mount, "host" | "view">): Pick<PlannedMount, "viewOf"> {
  return mount.view === undefined ? {} : { viewOf: originOf(mount) };
}

/** A file of Corral's own that a cell is shown. */
export function ownFileMount({ path, host, source: { kind, device, inode } }: OwnFile): PlannedMount {
  return { path, host, kind, identity: { device, inode }, mode: "ro", origin: "corral" };
}

function itemMounts({ io, attachments }: ItemPlumbing): [string, string, "rw"?][] {
  return [
    [ITEM_IO_PATH, io, "rw"],
    [ATTACHMENTS_PATH, attachments],
  ];
}

/** A mount, as far as it says what another one inside of it needs. Both paths are of one namespace. */
type Placed = Pick<PlannedMount, "path" | "host" | "mode" | "staged">;

/** A folder that has to be held in its place. */
export interface Anchor {
  readonly path: string;
  readonly host: string;
  /** The writable mount that it belongs to. */
  readonly outer: Placed;
  /** A mount inside of it, for messages. */
  readonly holds: string;
}

/** The most folders of one cell that are held in their places. Each is a mount more, and on the Engine a volume. */
export const MAX_ANCHORS = 250;

/**
 * Every folder strictly between a writable mount and a mount inside of it. A mount protects its own mount point alone: the
 * worker could rename a folder above it, make another one, and so decide what the host has at the path of the inner mount. A
 * folder that is mounted over itself can be neither renamed nor removed (docs/facts.md, fact: mount-point-is-busy).
 *
 * `mounts`: all that the cell has, with the modes that they have there; a file is a mount like any other.
 */
export function anchorsOf<M extends Placed>(mounts: readonly M[]): (Anchor & { readonly outer: M })[] {
  const taken = new Set(mounts.map(({ path }) => path));
  const anchors: (Anchor & { readonly outer: M })[] = [];
  for (const { path: holds } of mounts) {
    const around = mounts.filter(({ path }) => isAround(path, holds));
    const outer = around.reduce<M | undefined>(
      (a, b) => (a !== undefined && isAround(b.path, a.path) ? a : b),
      undefined,
    );
    if (outer?.mode !== "rw") continue;
    const names = holds
      .slice(outer.path.length)
      .split("/")
      .filter((name) => name !== "");
    for (const index of names.slice(1).keys()) {
      const rest = names.slice(0, index + 1).join("/");
      const path = join(outer.path, rest);
      if (taken.has(path)) continue;
      taken.add(path);
      anchors.push({ path, host: join(outer.host, rest), outer, holds });
    }
  }
  return anchors;
}

function isAround(outer: string, path: string): boolean {
  return outer !== path && path.startsWith(outer === "/" ? "/" : `${outer}/`);
}

/** The anchors of a sandbox whose views are made, in its own namespace: {@link planMounts} needs facts of their host paths too. */
export function sandboxAnchors({ mounts }: Pick<Sandbox, "mounts">): (Anchor & { readonly outer: Mount })[] {
  return anchorsOf(mounts.map((mount) => ({ ...mount, mode: modeInCell(mount) }))).slice(0, MAX_ANCHORS);
}

function anchorMount(request: MountRequest, { path, host, outer }: Anchor): PlannedMount {
  const { mode, staged } = outer;
  return { ...bindOf(request, path, host), mode, ...(staged && { staged }), origin: "anchor" };
}

/** A mount that needs a view is never bound directly: a missing view is an error. */
function asDelivered(
  mount: Mount,
  views: MountRequest["views"],
): Pick<PlannedMount, "mode"> & Partial<Pick<PlannedMount, "staged" | "heldBack">> {
  const delivery = deliveryOf(mount);
  const isView = views === "would-be" ? delivery === "view" : views.has(mount.path);
  if (delivery === "view" && !isView) throw new Error(`planFor was given no view for ${mount.path}`);
  if (isView) return { mode: mount.mode, staged: true };
  if (delivery === "read-only") return { mode: modeInCell(mount), heldBack: "approval" };
  return { mode: modeInCell(mount) };
}

function modeInCell(mount: Mount): PlannedMount["mode"] {
  return deliveryOf(mount) === "read-only" ? "ro" : mount.mode;
}

/**
 * A mount below another needs a mount point. If both lead to the same host tree, it exists; else the Engine would create
 * the directory on the host, as root, so such a mount is refused.
 */
function refuseForeignNesting({ mounts }: Sandbox, violations: Violation[]): void {
  for (const mount of mounts) {
    for (const outer of mounts) {
      const rest = below(outer.path, mount.path);
      if (outer === mount || rest === null || rest === "") continue;
      if (originOf(mount) !== join(originOf(outer), rest))
        violations.push({ code: "MOUNT_RESERVED", path: mount.path, because: "nesting" });
    }
  }
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

/** The mount options of a file system in memory, as the kernel takes them. */
export function tmpfsOptions(tmpfs: PlannedTmpfs, { user }: Pick<Plan, "user">): string {
  const owner = tmpfs.mode === "1777" ? "" : `,uid=${user.uid},gid=${user.gid}`;
  return `rw,nosuid,nodev,${tmpfs.exec ? "exec" : "noexec"},size=${tmpfs.bytes},mode=${tmpfs.mode}${owner}`;
}

/** Settings of the kernel, which cells may only read, as in the Engine's containers. */
export const READ_ONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/** What the kernel shows of the machine and cells do not have, as in the Engine's containers, of old versions and new ones. */
export const MASKED_PATHS = [
  "/proc/asound",
  "/proc/acpi",
  "/proc/interrupts",
  "/proc/kcore",
  "/proc/keys",
  "/proc/latency_stats",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/proc/sched_debug",
  "/proc/scsi",
  "/sys/firmware",
  "/sys/devices/virtual/powercap",
];

/** Where a serving cell reads an item's input and writes its command's output. Corral makes these files. */
const ITEM_IO_PATH = "/.corral/io";

/** The kernel counts shared memory in batches, so a little may seem to be left. */
const MAX_SHARED_KIB = 1024;

/**
 * A serving cell's first process: for each line `run ID` of its input it runs the worker's command once, and then
 * scrubs: it ends every other process at once, empties everything that can be written in memory, checks that nothing is
 * left, and only then answers `ended ID CODE KILLED`. `KILLED` counts the processes that the kernel has killed for memory.
 *
 * A descriptor on its way between two Unix sockets outlives every process, and keeps open whatever it names. While there
 * is a socket in the cell's network namespace, of any kind, the cell is not clean; nor while it uses memory that no file
 * and no process explains. Sockets that only refer to each other are freed when the kernel looks for them, which it does
 * when some Unix socket is closed: `logger` opens one and closes it.
 *
 * It has the worker's own rights, because no process in a cell can change its user. The worker cannot influence it:
 * it is process 1, which no signal from inside its namespace ends, and it ignores SIGINT, which a shell would handle;
 * its binary can be executed and not read, so the kernel lets no process trace it or open its descriptors; the seccomp
 * profile of a serving cell lets no process change another one's limits or priority; and the worker inherits none of its
 * descriptors. Each item has a session of its own, so no signal to its process group or terminal reaches the first
 * process or another item. So an item cannot forge its exit status or its end, write into the output of another item, or
 * restrict the items after it (docs/facts.md, fact: cell-reuse).
 *
 * A program of the worker that is prepared once and forks for each item would be quicker, and would judge itself (docs/facts.md, fact: prepared-parent).
 *
 * A cell that is not clean afterwards reports it and ends: `dirty ID CODE KILLED WHAT`.
 *
 * The shell reads byte by byte, with two system calls for each, and three files about System V objects begin with a long line. So
 * they stay open behind that line, where a read gives the objects that there are now. Kernels before 5.8 may not find an
 * object again from there (some of 2020 move on at the end of the file), so there the files are read anew.
 *
 * Its variables have names that no worker's environment uses: else they would be exported, and an item could read the
 * exit code of the one before. A fork may fail, because dead processes still count against the limit; then it continues.
 */
const SERVE_SCRIPT = filledIn(textBeside(import.meta.url, "serve.sh"), { MAX_SHARED_KIB, ITEM_IO_PATH });

/**
 * The command of a serving cell. `places` are the directories in memory that are emptied after each item, `memoryBytes` is the
 * cell's limit: a quarter of it is how much an item may leave in caches of the kernel that are not files. The script
 * looks up the worker's command itself, as the gate does: this shell would prefer its own applets.
 */
export function serveCommand(command: readonly string[], places: readonly string[], memoryBytes: number): string[] {
  const lines = places.map((place) => `${place}\n`).join("");
  return [GATE_PATH, "sh", "-c", SERVE_SCRIPT, GATE_PATH, lines, String(memoryBytes), ...command];
}

const WORDS_BEFORE_SERVED = serveCommand([], [], 0).length;

/** The program of the worker's command: in a serving cell, that of the command which {@link serveCommand} was given. */
export function programOf({ command, serves }: Pick<Plan, "command" | "serves">): string {
  return command[serves === true ? WORDS_BEFORE_SERVED : 0] ?? "";
}
