import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

/** Where a container of an OCI runtime is on this machine. */
export interface OciPlaces {
  /** The directory of its root file system. */
  readonly root: string;
  /** Its control group, below the mount point of each hierarchy. */
  readonly cgroup: string;
}

/** The rules of a seccomp profile in the Engine's format, as far as the bench's own profile uses it. */
interface EngineRule {
  readonly names: readonly string[];
  readonly action: string;
  readonly args?: readonly unknown[];
  readonly errnoRet?: number;
  readonly includes?: { readonly arches?: readonly string[] };
}

/** The Engine's names of processors and the kernel's, by Node's. */
const ARCHITECTURES: Readonly<Record<string, readonly [engine: string, kernel: string]>> = {
  x64: ["amd64", "SCMP_ARCH_X86_64"],
  arm64: ["arm64", "SCMP_ARCH_AARCH64"],
};

const CPU_PERIOD_US = 100_000;
const STILL = ["nosuid", "noexec", "nodev"];

/** The `config.json` of a bundle: the same limits, user, profile and mounts as those of `docker run` in this bench. */
export function ociConfig(plan: Plan, { command, binds }: OneRun, { root, cgroup }: OciPlaces, seccomp: string) {
  const { user, limits, tmpfs, workingDir, env } = plan;
  const rlimit = (type: string, most: number) => ({ type: `RLIMIT_${type}`, hard: most, soft: most });
  return {
    ociVersion: "1.0.2",
    root: { path: root, readonly: true },
    hostname: "bench",
    process: {
      user,
      args: command,
      env: Object.entries(env).map(([key, value]) => `${key}=${value}`),
      cwd: workingDir,
      capabilities: {},
      rlimits: [rlimit("NOFILE", limits.nofile), rlimit("FSIZE", limits.diskBytes), rlimit("CORE", 0)],
      noNewPrivileges: true,
    },
    mounts: [
      ...ENGINE_MOUNTS,
      ...tmpfs.map(({ path, bytes }) => mounted("tmpfs", path, ["nosuid", "nodev", "noexec", `size=${bytes}`])),
      ...binds.map(({ host, path, mode }) => mounted("bind", path, ["bind", "rprivate", mode], host)),
    ],
    linux: {
      cgroupsPath: cgroup,
      namespaces: ["mount", "network", "uts", "pid", "ipc"].map((type) => ({ type })),
      resources: {
        devices: [{ allow: false, access: "rwm" }],
        memory: { limit: limits.memoryBytes, swap: limits.memoryBytes },
        cpu: { quota: Math.round(limits.cpus * CPU_PERIOD_US), period: CPU_PERIOD_US },
        pids: { limit: limits.pids },
      },
      seccomp: ociSeccomp(seccomp),
      maskedPaths: ["acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi"].map(inProc),
      readonlyPaths: ["bus", "fs", "irq", "sys", "sysrq-trigger"].map(inProc),
    },
  };
}

/** What the Engine mounts into every container. */
const ENGINE_MOUNTS = [
  mounted("proc", "/proc", STILL),
  mounted("tmpfs", "/dev", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
  mounted("devpts", "/dev/pts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
  mounted("sysfs", "/sys", [...STILL, "ro"]),
  mounted("cgroup", "/sys/fs/cgroup", [...STILL, "ro"]),
  mounted("mqueue", "/dev/mqueue", STILL),
  mounted("tmpfs", "/dev/shm", [...STILL, "mode=1777", "size=65536k"]),
];

function mounted(type: string, destination: string, options: readonly string[], source = type) {
  return { type, destination, options, source };
}

function inProc(name: string): string {
  return `/proc/${name}`;
}

/** From the Engine's format to that of OCI: the rules for this processor. */
function ociSeccomp(profile: string) {
  const [engine, kernel] = ARCHITECTURES[process.arch] ?? [];
  const { defaultAction, syscalls } = JSON.parse(profile) as { defaultAction: string; syscalls: EngineRule[] };
  return {
    defaultAction,
    defaultErrnoRet: 1,
    ...(kernel === undefined ? {} : { architectures: [kernel] }),
    syscalls: syscalls
      .filter(({ includes }) => includes?.arches?.includes(engine ?? "") ?? true)
      .map(({ includes: _, ...rule }) => rule),
  };
}
