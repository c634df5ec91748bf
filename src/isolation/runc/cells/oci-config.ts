import fs, { readFileSync } from "node:fs";
import { join } from "node:path";
import { present } from "../../../text/present.ts";
import { gateCommand, gateEnvironment } from "../../gate/report.ts";
import type { NameFiles } from "../../network/name-files.ts";
import {
  directoriesAbove,
  type EntryNoun,
  type InTheWay,
  MASKED_PATHS,
  type MountPoint,
  READ_ONLY_PATHS,
  tmpfsOptions,
} from "../../plan/mounts.ts";
import { HOSTS_PATH, type Plan, type PlannedMount, type PlannedUser } from "../../plan/plan.ts";
import type { OciFilters } from "../../seccomp/planned-profile.ts";
import type { Pins } from "../../sources/pin.ts";
import { cgroupPlace, type OciRuntime, type RuncOptions } from "../model/layout.ts";

/** The kernel's own default. */
const CPU_PERIOD_US = 100_000;

/** What the Engine gives a container whose image sets no PATH. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const HOSTNAME = "corral";

/** Characters 1:3 null, 1:5 zero, 1:8 random, 1:9 urandom, 5:0 tty; runc adds those of terminals. */
const DEVICES = [
  [1, 5],
  [1, 3],
  [1, 9],
  [1, 8],
  [5, 0],
] as const;

interface ConfigRequest {
  readonly plan: Plan;
  readonly mounts: readonly OciMount[];
  readonly id: string;
  /** Relative to the cell's directory. */
  readonly root: string;
  readonly options: Pick<RuncOptions, "apparmor" | "programs">;
  readonly filters: OciFilters;
  /** Version 2 of control groups hides where a cell is in them. */
  readonly ownCgroupNamespace: boolean;
}

/** Translates a plan for an OCI runtime (OCI runtime specification 1.0.2), and decides nothing. */
export function ociConfig({ plan, mounts, id, root, options, filters, ownCgroupNamespace }: ConfigRequest): object {
  const { hardening, limits, keeper: first = plan.user } = plan;
  const gate = gateCommand(plan);
  return {
    ociVersion: "1.0.2",
    process: ociProcess(plan, options.apparmor, {
      user: first,
      args: hasInit(plan) ? [INIT_PATH, "--", ...gate] : gate,
      env: gateEnvironment(plan),
      terminal: false,
    }),
    // It is mounted read-only and without devices before runc starts: to make it read-only, runc would allow devices again.
    root: { path: root, readonly: false },
    hostname: HOSTNAME,
    mounts,
    linux: {
      // Its namespace has a loopback device and nothing else, so these give nothing away.
      sysctl: { "net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647" },
      resources: {
        devices: [
          { allow: false, access: "rwm" },
          ...DEVICES.map(([major, minor]) => ({ allow: true, type: "c", major, minor, access: "rwm" })),
        ],
        memory: { limit: limits.memoryBytes, swap: limits.memoryBytes, disableOOMKiller: false },
        cpu: { quota: Math.round(limits.cpus * CPU_PERIOD_US), period: CPU_PERIOD_US },
        pids: { limit: limits.pids },
      },
      cgroupsPath: `/${cgroupPlace(id)}`,
      namespaces: ["mount", "network", "uts", "pid", "ipc", ...(ownCgroupNamespace ? ["cgroup"] : [])].map((type) => ({
        type,
      })),
      ...(hardening.seccomp === "corral" ? { seccomp: filters.of(plan) } : {}),
      maskedPaths: maskedPaths(options.programs.runtime.kind),
      readonlyPaths: READ_ONLY_PATHS,
    },
  };
}

interface ProcessRequest {
  readonly user: PlannedUser;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly terminal: boolean;
}

/** A process of a cell: its first one, or a command. Both have the same rights. */
export function ociProcess(
  { hardening, limits }: Plan,
  apparmor: string | undefined,
  { user, args, env, terminal }: ProcessRequest,
): object {
  const all = { PATH: DEFAULT_PATH, HOSTNAME, ...(terminal ? { TERM: "xterm" } : {}), ...env };
  const { capabilities } = hardening;
  // As a program that is executed by another user than root: it holds none, and a set-user-ID program could gain them.
  const held = user.uid === 0 ? capabilities : [];
  return {
    terminal,
    user: { uid: user.uid, gid: user.gid, additionalGids: [user.gid] },
    args,
    env: Object.entries(all).map(([name, value]) => `${name}=${value}`),
    // The gate enters the worker's directory: runc would create a missing one, as root, in a granted directory.
    cwd: "/",
    capabilities: { bounding: capabilities, effective: held, permitted: held, inheritable: [], ambient: [] },
    rlimits: [
      limitOf("NOFILE", limits.nofile),
      limitOf("FSIZE", limits.diskBytes),
      limitOf("CORE", 0),
      // The kernel counts the bytes of message queues for each user number, and files made in /dev/mqueue are queues too.
      limitOf("MSGQUEUE", 0),
      ...inheritedLimits(),
    ],
    noNewPrivileges: hardening.noNewPrivileges,
    ...present({ apparmorProfile: apparmor }),
    oomScoreAdj: 0,
  };
}

/** Those that no plan sets, as an Engine's containers have them: otherwise this process's own would be inherited. */
function inheritedLimits(): object[] {
  const [own, first] = ["self", "1"].map((pid) => readFileSync(`/proc/${pid}/limits`, "latin1")) as [string, string];
  const bound = mayRaiseLimits() ? "" : own;
  const limit = (type: string, name: string, soft: bigint, hard = soft): object => {
    const highest = hardLimit(bound, name);
    return { type: `RLIMIT_${type}`, soft: exact(soft, highest), hard: exact(hard, highest) };
  };
  return [
    limit("RTPRIO", "Max realtime priority", 0n),
    limit("NICE", "Max nice priority", 0n),
    limit("STACK", "Max stack size", 8n * MIB, UNLIMITED),
    limit("MEMLOCK", "Max locked memory", 8n * MIB),
    limit("AS", "Max address space", UNLIMITED),
    limit("CPU", "Max cpu time", UNLIMITED),
    limit("DATA", "Max data size", UNLIMITED),
    limit("LOCKS", "Max file locks", UNLIMITED),
    limit("RSS", "Max resident set", UNLIMITED),
    limit("RTTIME", "Max realtime timeout", UNLIMITED),
    // The kernel counts both for a user, also over all cells, and sets them by the size of the machine.
    limit("NPROC", "Max processes", hardLimit(first, "Max processes")),
    limit("SIGPENDING", "Max pending signals", hardLimit(first, "Max pending signals")),
  ];
}

const CAP_SYS_RESOURCE = 24n;

/** Root of a container may be without this: then a limit of its own is the highest that a cell can have. */
function mayRaiseLimits(): boolean {
  const held = /^CapEff:\t([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1] ?? "0";
  return ((BigInt(`0x${held}`) >> CAP_SYS_RESOURCE) & 1n) === 1n;
}

/** `limits`: as proc(5) shows them. */
function hardLimit(limits: string, name: string): bigint {
  const value = new RegExp(`^${name} +\\S+ +(\\d+) `, "m").exec(limits)?.[1];
  return value === undefined ? UNLIMITED : BigInt(value);
}

/** The number as it is: the kernel's one for no limit is larger than any that JavaScript has. */
function exact(value: bigint, highest: bigint): object {
  return JSON.rawJSON(String(value < highest ? value : highest));
}

const MIB = 1024n * 1024n;
const UNLIMITED = 0xffff_ffff_ffff_ffffn;

declare global {
  interface JSON {
    /** Node has it, the compiler does not know it yet. */
    rawJSON(text: string): object;
  }
}

function limitOf(name: string, value: number): object {
  return { type: `RLIMIT_${name}`, soft: value, hard: value };
}

/** The image has something else where mounts belong. */
export class ImageInTheWay extends Error {
  readonly entries: readonly InTheWay[];

  constructor(entries: readonly InTheWay[]) {
    super(`the image has ${entries.map(({ path, is }) => `${is} at ${path}`).join(", ")}`);
    this.entries = entries;
  }
}

/** What the Engine replaces too in the layer that it lays over an image, unless it is a directory. */
const REPLACED: ReadonlySet<string> = new Set(
  "/dev /proc /sys /etc /etc/hosts /etc/resolv.conf /etc/hostname".split(" "),
);

/**
 * Makes the mount points of a cell, so that runc makes none and follows no link of the image: runc before 1.3.6 makes the links of
 * `/dev` wherever that leads, also on the host (CVE-2026-41579). Nothing else writes in `root` meanwhile, and each step is taken only when it is known
 * to be a directory.
 *
 * @param root the root file system, which only this cell will have, by a path on which no link is the image's.
 * @throws ImageInTheWay with all that cannot be replaced.
 */
export function makeMountPoints(root: string, points: readonly MountPoint[]): void {
  const entries: InTheWay[] = [];
  for (const { path, kind } of points) {
    const isClear = directoriesAbove(path).every((above) => madeAt(root, above, "directory", entries));
    if (isClear) madeAt(root, path, kind, entries);
  }
  const all = new Map(entries.map((entry) => [entry.path, entry]));
  if (all.size > 0) throw new ImageInTheWay([...all.values()]);
}

/** False if it is something else, which is added to `entries`. */
function madeAt(root: string, path: string, kind: MountPoint["kind"], entries: InTheWay[]): boolean {
  const place = join(root, path);
  let found = kindAt(place);
  if (found === `a ${kind}`) return true;
  if (found !== null && found !== "a directory" && REPLACED.has(path)) {
    fs.unlinkSync(place);
    found = null;
  }
  if (found !== null) {
    entries.push({ path, is: found });
    return false;
  }
  if (kind === "file") fs.writeFileSync(place, "", { flag: "wx" });
  else fs.mkdirSync(place);
  // Whatever the umask of this process.
  fs.chmodSync(place, 0o755);
  return true;
}

function kindAt(place: string): EntryNoun | null {
  const stats = fs.lstatSync(place, { throwIfNoEntry: false });
  if (stats === undefined) return null;
  if (stats.isSymbolicLink()) return "a symbolic link";
  if (stats.isDirectory()) return "a directory";
  if (stats.isFile()) return "a file";
  if (stats.isFIFO()) return "a FIFO";
  return stats.isSocket() ? "a socket" : "a device";
}

/** One mount as runc reads it. */
interface OciMount {
  readonly destination: string;
  readonly type: string;
  readonly source: string;
  readonly options: readonly string[];
}

/** The init is called as in the Engine's containers. In a directory of Corral's own, no link of the image leads elsewhere. */
export const INIT_PATH = "/.corral/docker-init";

/** A first process of the worker's user is its own init: the worker could signal any other process of its user. */
export function hasInit({ serves, startsCommands }: Plan): boolean {
  return serves !== true && startsCommands !== true;
}

/** What every container of the Engine has, in its order. */
const OF_THE_KERNEL: readonly OciMount[] = [
  { destination: "/proc", type: "proc", source: "proc", options: ["nosuid", "noexec", "nodev"] },
  {
    destination: "/dev",
    type: "tmpfs",
    source: "tmpfs",
    options: ["nosuid", "strictatime", "mode=755", "size=65536k"],
  },
  {
    destination: "/dev/pts",
    type: "devpts",
    source: "devpts",
    options: ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
  },
  { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
  { destination: "/sys/fs/cgroup", type: "cgroup", source: "cgroup", options: ["ro", "nosuid", "noexec", "nodev"] },
  { destination: "/dev/mqueue", type: "mqueue", source: "mqueue", options: ["nosuid", "noexec", "nodev"] },
  {
    destination: "/dev/shm",
    type: "tmpfs",
    source: "shm",
    options: ["nosuid", "noexec", "nodev", "mode=1777", "size=67108864"],
  },
];

/** What a cell's mounts are made from, beside its plan. */
interface MountSources {
  readonly pins: Pins;
  readonly names: NameFiles;
  readonly init: string;
  /** What makes them. */
  readonly by: OciRuntime["kind"];
  /** Whether this machine has version 2 of control groups alone. */
  readonly unified: boolean;
}

/**
 * All mounts of a cell, shallow ones first.
 *
 * runc resolves the path of a source once more: the gate refuses the cell if that leads to anything but what is pinned. Until
 * all mounts are made, a directory with a mount below it is read-only: otherwise runc could make a mount point in a directory
 * that took its place.
 */
export function ociMounts(plan: Plan, { pins, names, init, by, unified }: MountSources): OciMount[] {
  const planned = plan.mounts.map((mount) => bindMount(mount, pins));
  const own = [
    ...(hasInit(plan) ? [fileMount(init, INIT_PATH)] : []),
    ...plan.tmpfs.map(
      (tmpfs): OciMount => ({
        destination: tmpfs.path,
        type: "tmpfs",
        source: "tmpfs",
        options: ["rprivate", ...tmpfsOptions(tmpfs, plan).split(",")],
      }),
    ),
    ...(plan.mounts.some(({ path }) => path === HOSTS_PATH) ? [] : [fileMount(names.hosts, HOSTS_PATH)]),
    fileMount(names.resolver, "/etc/resolv.conf"),
    fileMount(names.hostname, "/etc/hostname"),
  ];
  const mounts = [...own, ...planned].sort((a, b) => depthOf(a.destination) - depthOf(b.destination));
  const outer = planned.filter(
    (mount) => !isReadOnly(mount) && mounts.some(({ destination }) => destination.startsWith(`${mount.destination}/`)),
  );
  return [
    ...OF_THE_KERNEL,
    ...mounts.map((mount) => (outer.includes(mount) ? { ...mount, options: [...mount.options, "ro"] } : mount)),
    ...outer.map((mount) => ({ ...mount, options: [...mount.options, "remount"] })),
    ...(by === "crun" ? againForCrun(names, unified) : []),
  ];
}

/** What a runtime hides by itself: crun would hide a directory behind one of this machine's disk. */
function maskedPaths(by: OciRuntime["kind"]): readonly string[] {
  return by === "crun" ? MASKED_PATHS.filter((path) => !isDirectory(path)) : MASKED_PATHS;
}

/**
 * crun forgets what the mount of the root forbids, and leaves control groups of version 1 writable.
 */
function againForCrun(names: NameFiles, unified: boolean): OciMount[] {
  const again = (destination: string, options: readonly string[]): OciMount => ({
    destination,
    type: "bind",
    source: names.hosts,
    options: ["remount", "bind", ...options],
  });
  const hidden = MASKED_PATHS.filter(isDirectory).map((destination) => ({
    destination,
    type: "tmpfs",
    source: "tmpfs",
    options: ["ro", "nosuid", "nodev", "noexec", "size=0k", "mode=755"],
  }));
  return [
    ...hidden,
    ...(unified ? [] : [again("/sys/fs/cgroup", ["ro", "nosuid", "nodev", "noexec"])]),
    again("/", ["nodev", "ro"]),
  ];
}

function isDirectory(path: string): boolean {
  return fs.statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** Never recursive: a file system that is mounted below a source is not part of what was granted. */
function bindMount({ path, host, mode }: PlannedMount, pins: Pins): OciMount {
  const pinned = pins.sources.get(host);
  const kept = pinned === undefined ? [] : flagsOf(pinned.descriptorPath);
  const options = ["bind", "rprivate", "nosuid", "nodev", ...(mode === "ro" ? ["ro"] : []), ...kept];
  return { destination: path, type: "bind", source: host, options: [...new Set(options)] };
}

function fileMount(source: string, destination: string): OciMount {
  return { destination, type: "bind", source, options: ["bind", "rprivate", "nosuid", "nodev", "ro"] };
}

/** What the source's own mount forbids: options that are set for a bind mount replace those that it would have from there. */
function flagsOf(descriptorPath: string): string[] {
  const id = /^mnt_id:\s*(\d+)$/m.exec(readFileSync(descriptorPath.replace("/fd/", "/fdinfo/"), "latin1"))?.[1];
  const line = readFileSync("/proc/self/mountinfo", "latin1")
    .split("\n")
    .find((each) => id !== undefined && each.startsWith(`${id} `));
  if (line === undefined) throw new Error("the kernel does not show the mount of a pinned source");
  const flags = line.split(" ")[5]?.split(",") ?? [];
  return ["ro", "noexec"].filter((flag) => flags.includes(flag));
}

function isReadOnly({ options }: OciMount): boolean {
  return options.includes("ro");
}

function depthOf(path: string): number {
  return path.split("/").length;
}
