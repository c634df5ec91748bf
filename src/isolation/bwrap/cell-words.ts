import { dirname } from "node:path";
import { textBeside } from "../../platform/text-beside.ts";
import { driverOfBoth } from "../../sandbox/driver-choice.ts";
import { CELL_USER_ID } from "../../sandbox/policy.ts";
import { holds } from "../../sandbox/virtual-path.ts";
import { gateCommand, gateEnvironment } from "../gate/report.ts";
import { MASKED_PATHS, READ_ONLY_PATHS, tmpfsOptions } from "../plan/mounts.ts";
import {
  CELL_HOST_NAME,
  GATE_PATH,
  HOST_IMAGE,
  HOSTS_PATH,
  type Plan,
  type PlannedTmpfs,
  type PlannedUser,
  PROGRAM_DIRECTORIES,
  SETTINGS,
  SHOWN_DEVICES,
} from "../plan/plan.ts";
import type { Delegated } from "./groups.ts";

/** Programs of this machine, absolute, which belong to root and no other user can write. */
export interface BwrapPrograms {
  readonly bwrap: string;
  /** A static one, from which the gate is made. */
  readonly busybox: string;
  readonly prlimit: string;
}

/** What this machine has of its image: a directory or file that is shown, or a link. */
export type HostEntry =
  | { readonly path: string; readonly is: "shown"; readonly isDirectory: boolean }
  | { readonly path: string; readonly is: "link"; readonly to: string }
  /** The kernel has it, and cells do not. */
  | { readonly path: string; readonly is: "hidden file" | "hidden directory" };

/** Descriptors that bubblewrap finds beside its streams. */
export const DESCRIPTORS = { words: 3, filter: 4, status: 5, call: 6 } as const;

/** A file of a cell in `/etc`. */
export interface CellFile {
  readonly path: string;
  readonly content: string;
}

export interface CellWords {
  readonly plan: Plan;
  readonly programs: BwrapPrograms;
  readonly entries: readonly HostEntry[];
  readonly files: readonly CellFile[];
  readonly gate: string;
  /** Files by which it enters its control groups; empty: it has none. */
  readonly groups: readonly string[];
  /** The directory in which the places in memory are made, which is empty on the disk. */
  readonly memory: string;
}

const OWN_PROGRAMS = "/.corral/bin";
/** The variable of the image, which is this machine's programs. */
export const IMAGE_PATH = `PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${OWN_PROGRAMS}`;
/** What the images of Corral have, and this machine has not. */
export const CORRAL_CALL = textBeside(import.meta.url, "../../../images/base/corral-call");
const STAGE = textBeside(import.meta.url, "stage.sh");
const FIRST = textBeside(import.meta.url, "first.sh");

/** Why such a plan is not for this driver, each in words for people; empty if it enforces all of it. */
export function notForBwrap(plan: Plan, own: PlannedUser, groups: Delegated | { readonly why: string }): string[] {
  const { network, hardening, user, image, keeper, serves, limits, mounts } = plan;
  const reasons = [
    [network === "open", "it has the open network, which is the Engine's own"],
    [typeof network === "object", "it has an allow list, and no ordinary user may enter the network of a cell"],
    [hardening.runtime !== undefined, `it runs under ${hardening.runtime}, a runtime of the Engine's`],
    [hardening.seccomp !== "corral", "it has the Engine's own seccomp profile"],
    [hardening.capabilities.length > 0, "it keeps capabilities"],
    [!hardening.noNewPrivileges, "its programs may gain privileges"],
    [mounts.some(({ origin }) => origin === "root"), "its root is writable"],
    [hardening.limitScope !== "process" && "why" in groups, `${NO_CELL_LIMITS}: ${"why" in groups ? groups.why : ""}`],
    [driverOfBoth("bwrap", hardening.driver ?? "auto") === null, `its policy has the driver ${hardening.driver}`],
    [serves === true, "one cell would serve many items. Use `reuse: fresh`"],
    [keeper !== undefined, "its commands are started by an engine"],
    [user.uid === 0, "its user is root"],
    [limits.pids < 1, "it may have no process"],
    [
      user.uid !== own.uid && user.uid !== CELL_USER_ID,
      `its files belong to user ${user.uid}, and its processes are those of user ${own.uid}`,
    ],
    [image.name !== HOST_IMAGE, `it has the image ${image.name}, and bubblewrap has this machine's programs alone`],
  ] as const;
  return reasons.flatMap(([is, reason]) => (is ? [reason] : []));
}

const NO_CELL_LIMITS =
  "memory and processors cannot be limited for a whole cell, which the policy asks for. A policy with `limit_scope: process`, such as `default` (`--policy default`), takes a limit of the memory of each process. A whole cell needs a control group";

/** The program and all of its words, which start the cell of a plan. */
export function startWords(given: CellWords): { program: string; args: string[] } {
  const { plan, programs, files, gate, groups, memory } = given;
  const { limits } = plan;
  const limit = (name: string, value: number): string => `--${name}=${value}:${value}`;
  const hasInit = plan.startsCommands !== true;
  const staged = stagedParts(given);
  return {
    program: programs.prlimit,
    args: [
      ...[limit("nofile", limits.nofile), limit("fsize", limits.diskBytes)],
      ...(groups.length === 0 ? [limit("data", limits.memoryBytes)] : []),
      ...[limit("core", 0), limit("msgqueue", 0), limit("rtprio", 0)],
      ...[programs.busybox, ...OWN_NAMESPACES, gate, "sh", "-c", STAGE, gate, memory, groups.join("\n")],
      ...[staged.directories, staged.files].map((paths) => paths.map((path) => path.replace(/^\//, "")).join(" ")),
      staged.table.join("\n"),
      ...files.flatMap(({ path, content }) => [path.slice(1), content]),
      ...["--", programs.bwrap, "--args", String(DESCRIPTORS.words), "--"],
      ...[GATE_PATH, "sh", "-c", FIRST, GATE_PATH, String(limits.pids), hasInit ? "init" : "alone"],
      ...gateCommand(plan).slice(1),
    ],
  };
}

/** Words for busybox: for the gate, which no ordinary user can read, the kernel writes no map of users. */
export const OWN_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--propagation=private"] as const;

/** What bubblewrap finds made in one directory: `/etc` and `/dev` of the cell, in which it can make no more, and the places in memory. */
function stagedParts({ plan, entries, files }: CellWords) {
  const own = new Set(files.map(({ path }) => path));
  const shown = entries.flatMap((entry) => (entry.is === "shown" && isOfEtc(entry.path) ? [entry] : []));
  const planned = [
    ...plan.mounts.map(({ path, kind }) => ({ path, isDirectory: kind === "directory" })),
    ...plan.tmpfs.map(({ path }) => ({ path, isDirectory: true })),
  ].filter(({ path }) => isOfEtc(path) && !own.has(path) && !entries.some((entry) => holds(entry.path, path)));
  const devices = SHOWN_DEVICES.map((name) => `/dev/${name}`);
  const [directories, others] = [true, false].map((is) =>
    [...shown, ...planned].flatMap(({ path, isDirectory }) => (isDirectory === is ? [path] : [])),
  ) as [string[], string[]];
  const places = placesOf(plan);
  return {
    directories: [
      "/dev",
      "/etc",
      EMPTY,
      ...places.map((_, index) => String(index)),
      ...directories,
      ...others.map(dirname),
    ],
    files: [...devices, ...others],
    table: [
      ...places.map((place, index) => `corral ${index} tmpfs ${tmpfsOptions(place, ROOT_OF_STAGE)} 0 0`),
      `corral ${EMPTY} tmpfs ro,nosuid,nodev,noexec,size=4k,mode=0555 0 0`,
      ...[...devices, ...shown.map(({ path }) => path)].map((path) => `${path} ${path.slice(1)} none rbind 0 0`),
    ],
  };
}

function isOfEtc(path: string): boolean {
  return path.startsWith("/etc/");
}

/** Who makes the places in memory: the cell's user is the same one, by another number. */
const ROOT_OF_STAGE = { user: { uid: 0, gid: 0 } };

const EMPTY = "empty";
const SHARED_MEMORY: PlannedTmpfs = { path: "/dev/shm", bytes: 64 * 1024 ** 2, exec: false, mode: "1777" };

/** Everything of a cell that is in memory. */
function placesOf({ tmpfs }: Plan): PlannedTmpfs[] {
  const isPlanned = tmpfs.some(({ path }) => path === SHARED_MEMORY.path);
  return [...(isPlanned ? [] : [SHARED_MEMORY]), ...tmpfs];
}

/** What bubblewrap reads from a descriptor: each word ends with a zero byte. */
export function bwrapWords(given: CellWords): Buffer {
  return Buffer.from(
    wordsOf(given)
      .map((word) => `${word}\0`)
      .join(""),
  );
}

function wordsOf({ plan, entries, memory }: CellWords): string[] {
  const { user } = plan;
  const places = placesOf(plan).map(({ path }, index) => ({ path, words: ["--bind", `${memory}/${index}`, path] }));
  const mounts = plan.mounts.map(({ path, host, mode }) => ({
    path,
    words: [mode === "ro" ? "--ro-bind" : "--bind", host, path],
  }));
  const env = { HOSTNAME: CELL_HOST_NAME, ...gateEnvironment(plan) };
  const call = `${OWN_PROGRAMS}/corral-call`;
  return [
    ...["--unshare-user", "--unshare-all", "--uid", String(user.uid), "--gid", String(user.gid)],
    ...["--cap-drop", "ALL", "--as-pid-1", "--die-with-parent", "--new-session", "--hostname", CELL_HOST_NAME],
    ...["--seccomp", String(DESCRIPTORS.filter), "--json-status-fd", String(DESCRIPTORS.status)],
    ...["--clearenv", ...Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value])],
    ...["--proc", "/proc"],
    ...entries.flatMap((entry) => {
      if (entry.is === "link") return ["--symlink", entry.to, entry.path];
      if (isOfEtc(entry.path)) return [];
      const from = { shown: entry.path, "hidden file": "/dev/null", "hidden directory": `${memory}/${EMPTY}` }[
        entry.is
      ];
      return ["--ro-bind", from, entry.path];
    }),
    ...["--perms", "0555", "--file", String(DESCRIPTORS.call), call],
    ...["--ro-bind", `${memory}/etc`, "/etc", "--dev-bind", `${memory}/dev`, "/dev"],
    ...[...places, ...mounts].sort((a, b) => depthOf(a.path) - depthOf(b.path)).flatMap(({ words }) => words),
    ...LINKS_OF_DEV.flatMap(([name, to]) => ["--symlink", to, `/dev/${name}`]),
    ...["--remount-ro", "/dev", "--remount-ro", "/"],
  ];
}

const LINKS_OF_DEV = [
  ["fd", "/proc/self/fd"],
  ["stdin", "/proc/self/fd/0"],
  ["stdout", "/proc/self/fd/1"],
  ["stderr", "/proc/self/fd/2"],
] as const;

function depthOf(path: string): number {
  return path.split("/").length;
}

/** What is at a path; null: nothing. */
export type HostLook = (
  path: string,
  behindLinks?: boolean,
) => { readonly link: string | null; readonly isDirectory: boolean } | null;

/** What is shown of this machine, and what is hidden. */
export function hostEntries(look: HostLook): HostEntry[] {
  const entryAt = (path: string): HostEntry[] => {
    const found = look(path);
    if (found === null) return [];
    return found.link === null
      ? [{ path, is: "shown", isDirectory: found.isDirectory }]
      : [{ path, is: "link", to: found.link }];
  };
  // Settings are shown as what they lead to: a link of `/etc` may lead to what a cell has not.
  const settings = SETTINGS.flatMap((path): HostEntry[] => {
    const found = look(path, true);
    return found === null ? [] : [{ path, is: "shown", isDirectory: found.isDirectory }];
  });
  const hidden = MASKED_PATHS.filter((path) => path.startsWith("/proc/")).flatMap((path): HostEntry[] => {
    const found = look(path);
    return found === null ? [] : [{ path, is: found.isDirectory ? "hidden directory" : "hidden file" }];
  });
  // Each mount costs bubblewrap the more the more there are: those of the kernel come first.
  return [...READ_ONLY_PATHS.flatMap(entryAt), ...hidden, ...PROGRAM_DIRECTORIES.flatMap(entryAt), ...settings];
}

/** What a cell has in `/etc` of its own. */
export function cellFiles({ user, env }: Plan, names: string): CellFile[] {
  const home = env.HOME ?? "/";
  const row = (name: string, uid: number, gid: number, place: string): string =>
    `${name}:x:${uid}:${gid}:${name}:${place}:/bin/sh\n`;
  return [
    { path: "/etc/passwd", content: `${row("root", 0, 0, "/root")}${row("worker", user.uid, user.gid, home)}` },
    { path: "/etc/group", content: `root:x:0:\n${user.gid === 0 ? "" : `worker:x:${user.gid}:\n`}` },
    { path: HOSTS_PATH, content: names },
    { path: "/etc/resolv.conf", content: "nameserver 127.0.0.1\n" },
    { path: "/etc/hostname", content: `${CELL_HOST_NAME}\n` },
    { path: "/etc/nsswitch.conf", content: "passwd: files\ngroup: files\nhosts: files\n" },
  ];
}
