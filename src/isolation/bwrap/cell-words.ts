import { dirname } from "node:path";
import { textBeside } from "../../platform/text-beside.ts";
import { driverOfBoth } from "../../sandbox/driver-choice.ts";
import { CELL_USER_ID } from "../../sandbox/policy.ts";
import { holds } from "../../sandbox/virtual-path.ts";
import { quotedForShell } from "../commands/command-pipes.ts";
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
  SHARED_MEMORY,
  SHOWN_DEVICES,
} from "../plan/plan.ts";
import type { Delegated } from "./groups.ts";

/** Programs of this machine, absolute, which belong to root and no other user can write. */
export interface BwrapPrograms {
  readonly bwrap: string;
  /** A static one, from which the gate is made. */
  readonly busybox: string;
}

/** What this machine has of its image: a directory or file that is shown, or a link. */
export type HostEntry =
  | { readonly path: string; readonly is: "shown"; readonly isDirectory: boolean }
  | { readonly path: string; readonly is: "link"; readonly to: string }
  /** The kernel has it, and cells do not. */
  | { readonly path: string; readonly is: "hidden file" | "hidden directory" };

/** A file of a cell in `/etc`. */
export interface CellFile {
  readonly path: string;
  readonly content: string;
}

/** What the cells of one launcher have in common. Paths are this machine's. */
export interface Shared {
  readonly entries: readonly HostEntry[];
  /** Those of cells, and empty ones where a cell has a mount. */
  readonly files: readonly CellFile[];
  /** Where cells have mounts in `/etc`. */
  readonly directories: readonly string[];
  readonly places: readonly Place[];
  /** In which is what is given to cells: a launcher has nothing else of this machine. */
  readonly sources: readonly string[];
  /** Where the directories of cells are, by their runs. */
  readonly cells: string;
  /** Where it is said how they are started. */
  readonly starts: string;
  readonly gate: string;
}

/** Memory of a cell, and where its launcher has it. */
type Place = PlannedTmpfs & { readonly at: string };

/** One cell. Paths are this machine's. */
export interface CellWords {
  readonly plan: Plan;
  readonly programs: BwrapPrograms;
  readonly entries: readonly HostEntry[];
  readonly gate: string;
  /** Files by which it enters its control groups; empty: it has none. */
  readonly groups: readonly string[];
  readonly streams: { readonly stdin: string; readonly stdout: string; readonly stderr: string };
  /** The words of its bubblewrap, and what that says of it. */
  readonly words: string;
  readonly status: string;
  readonly filter: string;
  readonly call: string;
}

/** Where bubblewrap finds its words, its filter and a file of the cell, and where it says what it made. */
const DESCRIPTORS = { words: 3, filter: 4, status: 5, call: 6 } as const;

const OWN_PROGRAMS = "/.corral/bin";
/** The variable of the image, which is this machine's programs. */
export const IMAGE_PATH = `PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${OWN_PROGRAMS}`;
/** What the images of Corral have, and this machine has not. */
export const CORRAL_CALL = textBeside(import.meta.url, "../../../images/base/corral-call");
const LAUNCHER = textBeside(import.meta.url, "launcher.sh");
const FIRST = textBeside(import.meta.url, "first.sh");

/** Why such a plan is not for this driver, each in words for people; empty if it enforces all of it. */
export function notForBwrap(plan: Plan, own: PlannedUser, groups: Delegated | { readonly why: string }): string[] {
  const { network, hardening, user, image, keeper, serves, limits, mounts } = plan;
  const reasons = [
    [network === "open", "it has the open network, which is the Engine's own"],
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

/** Where a launcher has this machine's directories, and its settings until they are copied. */
const HOST = "/host";
const SETTINGS_HERE = "/settings";
/** The kernel's own, until all mounts of a cell are made: the program that makes them would read their list for each. */
const UNFOUND_PROC = "/unfound/proc";
/** Where each cell has its memory. It alone sees those mounts. */
const PLACES = "/places";
const TABLE = "/table";
const EMPTY = "/empty";

/** What the cells of one launcher share, of which none can be written by a cell. */
export function sharedBy(
  { plan, programs, entries, gate, groups }: Omit<CellWords, "streams" | "words" | "status" | "filter" | "call">,
  { cells, starts }: Pick<Shared, "cells" | "starts">,
  files: readonly CellFile[],
): Shared {
  const own = new Set(files.map(({ path }) => path));
  const points = [
    ...plan.mounts.map(({ path, kind }) => ({ path, isDirectory: kind === "directory" })),
    ...plan.tmpfs.map(({ path }) => ({ path, isDirectory: true })),
  ].filter(({ path }) => isOfEtc(path) && !own.has(path) && !entries.some((entry) => holds(entry.path, path)));
  const empty = points.flatMap(({ path, isDirectory }) => (isDirectory ? [] : [{ path, content: "" }]));
  // All of a directory of the first level: those inside come and go.
  const tops = [
    ...[cells, starts, gate],
    ...(isShown(programs.bwrap, entries) ? [] : [programs.bwrap]),
    ...plan.mounts.map(({ host }) => host),
  ].map((path) => `/${path.split("/")[1]}`);
  return {
    ...{ entries, cells, starts, gate },
    files: [...files, ...empty],
    directories: points.map(({ path, isDirectory }) => (isDirectory ? path : dirname(path))),
    places: placesOf(plan),
    sources: [...new Set([...tops, ...groups.map(dirname).map(dirname)])].sort(),
  };
}

/** For bubblewrap, which becomes the launcher: its root file system is in memory, and only it can write there. */
export function launcherWords({ entries, files, directories, places, sources, cells, starts, gate }: Shared): string[] {
  const table = [
    ...places.map((place) => `corral ${place.at} tmpfs ${tmpfsOptions(place, ROOT_OF_LAUNCHER)} 0 0`),
    `${UNFOUND_PROC} /proc none move 0 0`,
  ];
  const here = (path: string): string => (isOfEtc(path) ? `${SETTINGS_HERE}${path.slice("/etc".length)}` : path);
  return [
    ...["--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--die-with-parent"],
    ...["--tmpfs", "/etc", "--tmpfs", "/dev", "--dev-bind", "/proc", UNFOUND_PROC, "--tmpfs", SETTINGS_HERE],
    ...[EMPTY, "/proc", "/dev/shm", "/tmp", ...places.map(({ at }) => at)].flatMap((path) => ["--dir", path]),
    ...entries.flatMap((entry) => {
      if (entry.is === "link") return ["--symlink", entry.to, entry.path];
      return isShownFile(entry) ? ["--ro-bind", entry.path, here(entry.path)] : [];
    }),
    ...SHOWN_DEVICES.flatMap((name) => ["--dev-bind", `/dev/${name}`, `/dev/${name}`]),
    ...LINKS_OF_DEV.flatMap(([name, to]) => ["--symlink", to, `/dev/${name}`]),
    ...sources.flatMap((path) => ["--bind", path, `${HOST}${path}`]),
    ...["--", `${HOST}${gate}`, "sh", "-c", LAUNCHER, `${HOST}${gate}`, `${HOST}${cells}`, `${HOST}${starts}`],
    ...[directories.join("\n"), TABLE, table.map((line) => `${line}\n`).join("")],
    ...files.flatMap(({ path, content }) => [path, content]),
  ];
}

/** A script for the gate's shell, which becomes the bubblewrap of a cell: all that the launcher knows of it is its run. */
export function startText({ plan, programs, entries, gate, groups, streams, ...files }: CellWords): string {
  const { limits } = plan;
  const here = (path: string): string => quotedForShell(`${HOST}${path}`);
  const hasInit = plan.startsCommands !== true;
  const command = [GATE_PATH, "sh", "-c", FIRST, GATE_PATH, String(limits.pids), hasInit ? "init" : "alone"];
  const { words, filter, status, call } = DESCRIPTORS;
  return [
    "set -e",
    "umask 022",
    `exec < ${here(streams.stdin)} > ${here(streams.stdout)} 2> ${here(streams.stderr)}`,
    // Corral learns that they are open, and so gets their end.
    "echo",
    `exec ${words}< ${here(files.words)} ${filter}< ${here(files.filter)} ${status}> ${here(files.status)} ${call}< ${here(files.call)}`,
    ...groups.map((group) => `echo 0 > ${here(group)}`),
    // The shell counts in blocks of 512 and of 1024 bytes.
    `ulimit -n ${limits.nofile} -f ${Math.floor(limits.diskBytes / 512)} -c 0 -q 0 -r 0`,
    ...(groups.length === 0 ? [`ulimit -d ${Math.floor(limits.memoryBytes / 1024)}`] : []),
    // bubblewrap has no option for memory in which nothing is executed. One program makes all: to start it takes longer than its work.
    `${here(gate)} mount -a -T ${TABLE}`,
    `exec ${[isShown(programs.bwrap, entries) ? programs.bwrap : `${HOST}${programs.bwrap}`, "--args", String(words), "--", ...command, ...gateCommand(plan).slice(1)].map(quotedForShell).join(" ")}`,
    "",
  ].join("\n");
}

/** Words for busybox: for the gate, which no ordinary user can read, the kernel writes no map of users. */
export const OWN_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--propagation=private"] as const;

/** What is shown as it is on this machine, but for the kernel's settings. */
function isShownFile(entry: HostEntry): boolean {
  return entry.is === "shown" && !entry.path.startsWith("/proc/");
}

function isShown(path: string, entries: readonly HostEntry[]): boolean {
  return entries.some((entry) => isShownFile(entry) && holds(entry.path, path));
}

function isOfEtc(path: string): boolean {
  return path.startsWith("/etc/");
}

/** Who makes the places in memory: the cell's user is the same one, by another number. */
const ROOT_OF_LAUNCHER = { user: { uid: 0, gid: 0 } };

/** Everything of a cell that is in memory, and where its launcher has it. */
function placesOf({ tmpfs }: Plan): readonly Place[] {
  const isPlanned = tmpfs.some(({ path }) => path === SHARED_MEMORY.path);
  return [...(isPlanned ? [] : [SHARED_MEMORY]), ...tmpfs].map((place, index) => ({
    ...place,
    at: `${PLACES}/${index}`,
  }));
}

/** What bubblewrap reads from a descriptor: each word ends with a zero byte. */
export function bwrapWords(given: CellWords): Buffer {
  return Buffer.from(
    wordsOf(given)
      .map((word) => `${word}\0`)
      .join(""),
  );
}

function wordsOf({ plan, entries }: CellWords): string[] {
  const { user } = plan;
  const places = placesOf(plan).map(({ path, at }) => ({ path, words: ["--bind", at, path] }));
  const mounts = plan.mounts.map(({ path, host, mode }) => ({
    path,
    words: [mode === "ro" ? "--ro-bind" : "--bind", `${HOST}${host}`, path],
  }));
  const env = { HOSTNAME: CELL_HOST_NAME, ...gateEnvironment(plan) };
  const call = `${OWN_PROGRAMS}/corral-call`;
  return [
    ...["--unshare-user", "--unshare-all", "--uid", String(user.uid), "--gid", String(user.gid)],
    ...["--cap-drop", "ALL", "--as-pid-1", "--die-with-parent", "--new-session", "--hostname", CELL_HOST_NAME],
    ...["--seccomp", String(DESCRIPTORS.filter), "--json-status-fd", String(DESCRIPTORS.status)],
    ...["--clearenv", ...Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value])],
    ...["--proc", "/proc"],
    // Each mount costs bubblewrap the more the more there are: those of the kernel come first.
    ...entries.flatMap((entry) => {
      if (entry.is === "link") return ["--symlink", entry.to, entry.path];
      if (isOfEtc(entry.path)) return [];
      const from = { shown: entry.path, "hidden file": "/dev/null", "hidden directory": EMPTY }[entry.is];
      return ["--ro-bind", from, entry.path];
    }),
    ...["--perms", "0555", "--file", String(DESCRIPTORS.call), call],
    ...["--ro-bind", "/etc", "/etc", "--dev-bind", "/dev", "/dev"],
    ...[...places, ...mounts].sort((a, b) => depthOf(a.path) - depthOf(b.path)).flatMap(({ words }) => words),
    ...["--remount-ro", "/"],
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
