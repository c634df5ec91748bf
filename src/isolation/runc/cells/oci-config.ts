import { readFileSync } from "node:fs";
import { present } from "../../../text/present.ts";
import { gateCommand, gateEnvironment } from "../../gate/report.ts";
import { READ_ONLY_PATHS } from "../../plan/mounts.ts";
import type { Plan, PlannedUser } from "../../plan/plan.ts";
import type { OciFilters } from "../../seccomp/planned-profile.ts";
import { cgroupPlace, type RuncOptions } from "../model/layout.ts";
import { hasInit, INIT_PATH, maskedPaths, type OciMount } from "./oci-mounts.ts";

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

export interface ConfigRequest {
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

export interface ProcessRequest {
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
