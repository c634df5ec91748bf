import { join } from "node:path/posix";
import type { Limits } from "../../sandbox/limits.ts";
import { packageSetup } from "../../sandbox/network/package-environment.ts";
import {
  type AllowedNetwork,
  MAX_PLACES,
  type Network,
  type NetworkPlaces,
  networkPlaces,
  PROXY,
  parseTarget,
  type ShownRule,
  shownRule,
} from "../../sandbox/network/rule.ts";
import type { Hardening } from "../../sandbox/policy.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { holds } from "../../sandbox/virtual-path.ts";

/** What a pinned mount source was when it was opened: Linux device and inode numbers, in decimal. */
export interface SourceIdentity {
  readonly device: string;
  readonly inode: string;
}

/**
 * Where a planned mount comes from: the derived sandbox, an attachment, or Corral itself (the gate and the socket). An `anchor` is a
 * folder of another mount, mounted over itself: it adds nothing, and the worker cannot move it away with the mount inside of it. `root`: a
 * directory of the image, as the worker writes it: what it writes is the run's, and never comes back.
 */
type MountOrigin = "sandbox" | "attachment" | "corral" | "anchor" | "root";

/** One bind mount of a cell. `path` is absolute in the cell, `host` on the host. */
export interface PlannedMount {
  readonly path: string;
  readonly host: string;
  readonly mode: "ro" | "rw";
  readonly kind: "directory" | "file" | "socket";
  readonly origin: MountOrigin;
  readonly identity: SourceIdentity;
  /** True for a view: changes are kept apart until they are accepted, and files that may not be read are not in it. */
  readonly staged?: true;
  /** The host directory that a view shows; absent: `host` itself. */
  readonly viewOf?: string;
  /** Why a mount that the sandbox may write is read-only in the cell; absent if both have the same mode. */
  readonly heldBack?: "approval";
}

export interface PlannedTmpfs {
  readonly path: string;
  readonly bytes: number;
  readonly exec: boolean;
  readonly mode: string;
}

export interface PlannedUser {
  readonly uid: number;
  readonly gid: number;
}

/**
 * Bounds that the Engine enforces (memory is memory and swap together) and that the run enforces (time, output). `diskBytes`
 * is also RLIMIT_FSIZE: the largest file that one process may write.
 */
export interface PlannedLimits extends Required<Limits> {
  readonly nofile: number;
}

/**
 * A cell that reaches the hosts of an allow list. Its own network has a loopback device and nothing else, as that of a cell
 * without a network; Corral listens at these places of it, and judges and connects outside of the cell.
 */
export interface PlannedNetwork extends NetworkPlaces {
  readonly rules: readonly ShownRule[];
  /** True if one of the places is the HTTP proxy. */
  readonly proxy: boolean;
}

/**
 * The container, as plain JSON. The driver only translates it and decides nothing; the gate verifies inside the cell
 * that the cell is as planned.
 */
export interface Plan {
  readonly version: 1;
  readonly run: string;
  readonly root: string;
  readonly parent: string | null;
  readonly worker: string;
  /** The folder of its project on the host. */
  readonly project?: string;
  readonly policy: string;
  readonly image: { readonly name: string; readonly id: string };
  /** The packages that were prepared for it, and are shown to it; absent: none. */
  readonly environments?: readonly { readonly kind: "pip" | "npm"; readonly digest: string }[];
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workingDir: string;
  /** True if its first process serves one item after another, without an init before it; else absent. */
  readonly serves?: true;
  /** True if its first process starts a session's commands, without an init before it; else absent. */
  readonly startsCommands?: true;
  /** The user of the worker's programs. */
  readonly user: PlannedUser;
  /**
   * The first process of a session whose commands the engine starts belongs to another user, whom they cannot signal; else
   * absent.
   */
  readonly keeper?: PlannedUser;
  readonly mounts: readonly PlannedMount[];
  readonly tmpfs: readonly PlannedTmpfs[];
  /** Names of the secrets whose values become files in memory, for its user alone. Absent: none. No plan has a value. */
  readonly secrets?: readonly string[];
  /** `none`: a loopback device and nothing else; `open`: the Engine's bridge. */
  readonly network: "none" | "open" | PlannedNetwork;
  readonly limits: PlannedLimits;
  readonly hardening: Hardening;
}

/** Where Corral's own files are in every cell. The gate must be called busybox: by its name it chooses its applet. */
export const GATE_PATH = "/.corral/busybox";
/** The gate on this machine. */
export function gateOf({ mounts }: Pick<Plan, "mounts">): string {
  const gate = mounts.find(({ path }) => path === GATE_PATH)?.host;
  if (gate === undefined) throw new Error("the plan has no gate");
  return gate;
}
/** The mounts of its sandbox and its attachments, without what Corral adds. */
export function grantedMounts({ mounts }: Pick<Plan, "mounts">): PlannedMount[] {
  return mounts.filter(({ origin }) => origin === "sandbox" || origin === "attachment");
}
export const SOCKET_PATH = "/.corral/socket";
/** How every cell is called. */
export const CELL_HOST_NAME = "corral";
/** The names of the hosts that a cell with an allow list reaches. */
export const HOSTS_PATH = "/etc/hosts";
/** Where a session keeps the full output of its commands. */
export const OUTPUT_PATH = "/.corral/output";
/** The named pipes of a session's commands. */
export const COMMANDS_PATH = "/.corral/commands";
export const ATTACHMENTS_PATH = "/attachments";
export const SECRETS_PATH = "/run/secrets";
export const HOME_PATH = "/home/worker";
/** The user of a session's keeper, and the one to use if the worker itself has that id. */
export const KEEPER_IDS = [65533, 65534] as const;
/** The first process of a session that starts its commands itself: a shell that reads its script from its input. */
export const SERVER_COMMAND = [GATE_PATH, "sh"] as const;
/** The first process of any other session, the keeper: it waits until its orchestrator closes its input or ends; then the cell ends. */
export const KEEP_COMMAND = [GATE_PATH, "sh", "-c", "while IFS= read -r _; do :; done"] as const;

interface NetworkPlanRequest {
  readonly sandbox: Sandbox;
  /** True for a cell that serves one item after another. */
  readonly serves: boolean;
}

export function planNetwork(request: NetworkPlanRequest, violations: Violation[]): Plan["network"] {
  const network = request.sandbox.commandNetwork ?? request.sandbox.network;
  if (network === false) return "none";
  if (network === true) return "open";
  if (isNothing(network)) return "none";
  const places = networkPlaces(network);
  const refuse = (reason: string): number => violations.push({ code: "NETWORK_NOT_ENFORCEABLE", reason });
  if (request.serves) refuse("a cell that serves many items has one network for all of them. Use `reuse: fresh`");
  if (places.listeners.length > MAX_PLACES)
    refuse(`it has ${places.listeners.length} addresses, and a cell can have ${MAX_PLACES}`);
  return { rules: network.allow.map(shownRule), ...places, proxy: places.listeners.includes(PROXY) };
}

/** As the Engine writes it for a container of its network `none`, with the cell's own name, which programs look up: they can still reach each other by name. */
export const LOCAL_NAMES = `127.0.0.1\tlocalhost ${CELL_HOST_NAME}
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
ff00::0\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
`;

/** Where a cell has its services. */
export const LOOPBACK = "127.0.0.1";

/** What a cell needs as files to reach the hosts of its network, by their paths there: their names, those of its services, and the set-up of package tools. */
export function networkFiles(network: Network, services: readonly string[] = []): Readonly<Record<string, string>> {
  const beside = nameLines(services.map((name) => ({ name, address: LOOPBACK })));
  if (typeof network === "boolean" || isNothing(network))
    return beside === "" ? {} : { [HOSTS_PATH]: LOCAL_NAMES + beside };
  const names = LOCAL_NAMES + beside + nameLines(networkPlaces(network).names);
  return { [HOSTS_PATH]: names, ...packageSetup(network).files };
}

/** Lines of the file of names. */
export function nameLines(names: NetworkPlaces["names"]): string {
  return names.map(({ name, address }) => `${address}\t${name}\n`).join("");
}

/** A worker that can be granted hosts has a place to ask for them, even if it has none yet. */
function isNothing({ allow, dynamic }: AllowedNetwork): boolean {
  return allow.length === 0 && dynamic === undefined;
}

/** The variables of such a cell: those of the proxy, and those of package tools. */
export function networkEnvironment(
  planned: Plan["network"],
  network: Network,
  services: readonly string[] = [],
): Record<string, string> {
  if (typeof planned === "string" || typeof network === "boolean") return {};
  return { ...proxyEnvironment(planned, network, services), ...packageSetup(network).env };
}

/**
 * Leads programs to the proxy, for hosts that have no address of their own in the cell. Names that have one are excepted,
 * unless a rule for the proxy may be about them: programs take an exception to include every name below it. A service of the host at
 * `127.0.0.1` or `localhost` is reached through the proxy too, and then no other program of the cell is by that name.
 */
function proxyEnvironment(
  { names, proxy }: PlannedNetwork,
  network: AllowedNetwork,
  services: readonly string[],
): Record<string, string> {
  if (!proxy) return {};
  const { allow, dynamic } = network;
  const proxied = [...allow.map(({ to }) => to), ...(dynamic?.within ?? [])].flatMap((to) => {
    const parsed = parseTarget(to);
    return parsed.ok && (parsed.target.wildcard || parsed.target.port === null) ? [parsed.target.host] : [];
  });
  const hosts = new Set(
    allow.flatMap(({ to }) => {
      const parsed = parseTarget(to);
      return parsed.ok ? [parsed.target.host.replace(/^\[(.*)\]$/, "$1")] : [];
    }),
  );
  const related = (a: string, b: string): boolean => a === b || a.endsWith(`.${b}`) || b.endsWith(`.${a}`);
  const direct = names.map(({ name }) => name).filter((name) => !proxied.some((host) => related(name, host)));
  const url = `http://${PROXY.address}:${PROXY.port}`;
  const variables = {
    HTTP_PROXY: url,
    HTTPS_PROXY: url,
    ALL_PROXY: url,
    NO_PROXY: [...OWN_NAMES.filter((name) => !hosts.has(name)), ...services, ...direct].join(","),
  };
  const lower = Object.entries(variables).map(([name, value]) => [name.toLowerCase(), value]);
  return { ...variables, ...Object.fromEntries(lower), NODE_USE_ENV_PROXY: "1" };
}

/** By which a cell names itself. */
const OWN_NAMES = ["localhost", "127.0.0.1", "::1"];

/** Packages that were prepared for a worker. `host`: their directory. */
export interface PlannedEnvironment {
  readonly kind: "pip" | "npm";
  readonly digest: string;
  readonly host: string;
}

/** Where the packages of each tool are in a cell, both when they are prepared and when they are used. */
export const ENVIRONMENT_PLACE = { pip: "/env/python", npm: "/env/node" } as const;

/**
 * The read-only mounts. Modules of Node are at `/node_modules` too: `import` looks there for every file of the cell, and does
 * not read NODE_PATH.
 */
export function environmentMounts(environments: readonly PlannedEnvironment[]): [path: string, host: string][] {
  return environments.flatMap(({ kind, host }): [string, string][] => [
    [ENVIRONMENT_PLACE[kind], host],
    ...(kind === "npm" ? [[MODULES, modulesOf(host)] as [string, string]] : []),
  ]);
}

const MODULES = "/node_modules";

/** The directories on the host that are mounted. */
export function environmentSources(environments: readonly PlannedEnvironment[]): string[] {
  return environmentMounts(environments).map(([, host]) => host);
}

function modulesOf(host: string): string {
  return join(host, "node_modules");
}

/** What programs need to find the packages; they come before those of the image. */
export function environmentVariables(
  environments: readonly PlannedEnvironment[],
  path: string,
): Readonly<Record<string, string>> {
  const kinds = environments.map(({ kind }) => kind);
  const programs = kinds.map((kind) => PROGRAMS[kind]);
  return {
    ...(programs.length === 0 ? {} : { PATH: [...programs, path].join(":") }),
    ...(kinds.includes("pip") ? { VIRTUAL_ENV: ENVIRONMENT_PLACE.pip } : {}),
  };
}

const PROGRAMS = { pip: `${ENVIRONMENT_PLACE.pip}/bin`, npm: `${MODULES}/.bin` } as const;

/** A mount of the sandbox at, in or around a place of the packages would hide one of both. */
export function refuseHiddenEnvironments(
  environments: readonly PlannedEnvironment[],
  { mounts, rooted }: Sandbox,
  violations: Violation[],
): void {
  const places = environmentMounts(environments).map(([path]) => path);
  for (const { path } of rooted ? [] : mounts) {
    if (places.some((place) => holds(path, place) || holds(place, path)))
      violations.push({ code: "MOUNT_RESERVED", path, because: "environment" });
  }
}

/** What makes cells: the Engine, an OCI runtime without it, or bubblewrap for an ordinary user. */
export const DRIVER_NAMES = ["engine", "runc", "bwrap"] as const;
export type DriverName = (typeof DRIVER_NAMES)[number];

export type SocketMemory = "counted" | "not counted";

/** What a plan requests for isolation, each line as the text that is compared. */
export type EnforcementLine =
  | "mounts"
  | "rootFileSystem"
  | "user"
  | "capabilities"
  | "noNewPrivileges"
  | "seccomp"
  | "network"
  | "memory"
  | "memoryAndSwap"
  | "pids"
  | "cpus"
  | "openFiles"
  | "fileSize";

export type EnforcementLines = Readonly<Record<EnforcementLine, string>>;

/** What a plan requested, and what the cell reported before its worker ran. Never assumed, always reported. */
export interface Enforcement {
  /** What made the cell. */
  readonly driver: DriverName;
  readonly requested: EnforcementLines;
  readonly actual: EnforcementLines;
  /**
   * Whether what waits in sockets of the cell counts: as memory with version 2 of control groups, for a limit beside it with version 1, which
   * only root can set. Absent: not known.
   */
  readonly socketMemory?: SocketMemory;
  /** Absent: the cell's is this machine's. */
  readonly kernel?: string;
}

/** The name of the image that is this machine's own programs, for a driver that has no other. */
export const HOST_IMAGE = "host";

/** Directories of programs. On most machines all but the first are links into it. */
export const PROGRAM_DIRECTORIES = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] as const;

/** What programs need of `/etc`: no accounts, no keys, no names of hosts. What is missing is left out. */
export const SETTINGS = (
  "alternatives debian_version fonts ghostscript ImageMagick-6 ImageMagick-7 java-11-openjdk java-17-openjdk java-21-openjdk " +
  "ld.so.cache ld.so.conf ld.so.conf.d libreoffice localtime magic mailcap mime.types os-release papersize paperspecs perl " +
  "python3 python3.11 python3.12 python3.13 ssl/certs ssl/openssl.cnf timezone"
)
  .split(" ")
  .map((name) => `/etc/${name}`);

/** True for a mount of it. This machine may have further file systems below its programs. */
export function isOfHostImage(path: string): boolean {
  return SETTINGS.includes(path) || PROGRAM_DIRECTORIES.some((directory) => holds(directory, path));
}

/** What a cell of bubblewrap has in its place, if its plan has nothing there. */
export const SHARED_MEMORY: PlannedTmpfs = { path: "/dev/shm", bytes: 64 * 1024 ** 2, exec: false, mode: "1777" };

/** Devices of every cell, which bubblewrap shows from this machine's `/dev`. */
export const SHOWN_DEVICES = ["null", "zero", "full", "random", "urandom", "tty"] as const;
