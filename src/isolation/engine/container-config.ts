import { readFile } from "node:fs/promises";
import type Docker from "dockerode";
import { z } from "zod";
import { present } from "../../text/present.ts";
import { collectSockets, heldBytes } from "../disk/unnamed-files.ts";
import { gateCommand } from "../gate/report.ts";
import { type ControlGroup, findControlGroup, socketBytes } from "../kernel/control-group.ts";
import { type FirstProcess, findFirstProcess } from "../kernel/first-process.ts";
import type { UsageMeasure } from "../kernel/usage-sampler.ts";
import type { NameFiles } from "../network/name-files.ts";
import type { Enforcement } from "../plan/enforcement.ts";
import { tmpfsOptions } from "../plan/mounts.ts";
import { CELL_HOST_NAME, HOSTS_PATH, type Plan, type PlannedMount } from "../plan/plan.ts";
import type { CellUsageNow } from "../port/cell.ts";
import { plannedSeccomp } from "../seccomp/planned-profile.ts";
import { asked } from "./answers/asked.ts";
import type { PinnedVolume } from "./pinned-volume.ts";

/** Where Engines put a container's control groups: with their own names, or with systemd's. Null if they are in neither place, as with an Engine that runs in a container. */
function controlGroupOf(container: string): ControlGroup | null {
  return findControlGroup([`docker/${container}`, `system.slice/docker-${container}.scope`]);
}

/** Process 1 of a container; null if this machine does not show it, e.g. with a runtime that has processes of its own. */
export function firstProcessOf(container: string): FirstProcess | null {
  return findFirstProcess(controlGroupOf(container));
}

/** Bounds what waits in the sockets of a container. Absent if this machine does not show its control groups. */
export function socketMemoryOf(container: string, memoryBytes: number): Pick<Enforcement, "socketMemory"> {
  const group = controlGroupOf(container);
  return group === null ? {} : { socketMemory: group.boundSockets(socketBytes(memoryBytes)) };
}

/** How to measure a container. */
export function measureOf(container: Docker.Container): UsageMeasure {
  const group = controlGroupOf(container.id);
  return group === null
    ? { by: "request", ask: () => askEngine(container) }
    : { by: "files", read: () => group.usage() };
}

/** What a container that runs uses now; null if it does not run. */
export async function usageNow(container: Docker.Container): Promise<CellUsageNow | null> {
  const group = controlGroupOf(container.id);
  const usage = group?.usage() ?? null;
  return group === null || usage === null ? await askEngine(container) : { ...usage, memoryBytes: group.memoryBytes() };
}

async function askEngine(container: Docker.Container): Promise<CellUsageNow | null> {
  const stats = await container.stats({ stream: false, "one-shot": true }).catch(() => null);
  // For a container that has ended the Engine reports zeros, and some runtimes nothing: that is no measurement.
  if (stats === null || !(stats.cpu_stats?.cpu_usage?.total_usage > 0)) return null;
  const { usage, max_usage: peak, stats: kinds } = stats.memory_stats ?? {};
  const unneeded = kinds?.total_inactive_file ?? kinds?.inactive_file ?? 0;
  return {
    memoryBytes: usage === undefined ? null : Math.max(0, usage - unneeded),
    cpuMs: Math.round(stats.cpu_stats.cpu_usage.total_usage / 1e6),
    memoryBytesPeak: peak ?? usage ?? null,
  };
}

const ProcessTable = z.object({ Titles: z.array(z.string()), Processes: z.array(z.array(z.string())) });

/** What a container's processes hold of deleted files; null if this user may not inspect them. */
export async function unnamedBytes(container: Docker.Container): Promise<number | null> {
  await collectSockets();
  const table = await asked(() => container.top(), ProcessTable).catch(() => null);
  if (table === null) return null;
  const column = table.Titles.indexOf("PID");
  const pids = table.Processes.map((process) => Number(process[column]));
  // A process may have ended and its id been reused: files of the new process are not this cell's.
  const isItsOwn = async (pid: number): Promise<boolean> =>
    (await readFile(`/proc/${pid}/cgroup`, "latin1").catch(() => "")).includes(container.id);
  return await heldBytes(pids, isItsOwn);
}

/** How mounts are passed to the daemon: a pinned directory as a volume, a file by its path. */
export interface ContainerSources {
  readonly volumes: ReadonlyMap<PlannedMount, PinnedVolume>;
  /** Of a cell that has a loopback device and nothing else; else null. */
  readonly names: NameFiles | null;
}

/** Seccomp profiles by the policy's names, as JSON text; `engine` needs none. */
export interface SeccompProfiles {
  readonly corral: string;
}

/** The kernel's own default. */
const CPU_PERIOD_US = 100_000;

/** Translates a plan into the Engine's API, and decides nothing. */
export function containerConfig(
  plan: Plan,
  name: string,
  labels: Record<string, string>,
  { volumes, names }: ContainerSources,
  seccomp: SeccompProfiles,
): Docker.ContainerCreateOptions {
  const { hardening, limits, keeper: first = plan.user } = plan;
  return {
    name,
    Image: plan.image.id,
    Labels: labels,
    Hostname: CELL_HOST_NAME,
    // Its namespace has a loopback device and nothing else (docs/facts.md, fact: network-disabled).
    NetworkDisabled: plan.network !== "open",
    User: `${first.uid}:${first.gid}`,
    // The gate enters the worker's directory: the Engine would create a missing one, as root, in a granted directory.
    WorkingDir: "/",
    Env: Object.entries(plan.env).map(([key, value]) => `${key}=${value}`),
    Entrypoint: gateCommand(plan),
    Cmd: [],
    // An image's health check would run its own commands in the cell, beside the worker's.
    Healthcheck: { Test: ["NONE"] },
    // What `docker stop` sends, in place of an image's own choice.
    StopSignal: "SIGTERM",
    Tty: false,
    OpenStdin: true,
    StdinOnce: true,
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    HostConfig: {
      NetworkMode: plan.network === "open" ? "bridge" : "none",
      ReadonlyRootfs: hardening.readOnlyRoot,
      CapDrop: ["ALL"],
      CapAdd: [...hardening.capabilities],
      SecurityOpt: securityOptions(plan, seccomp),
      Privileged: false,
      // A first process of the worker's user is its own init: the worker could signal any other process of its user.
      Init: plan.serves !== true && plan.startsCommands !== true,
      IpcMode: "private",
      ...present({ Runtime: hardening.runtime }),
      Memory: limits.memoryBytes,
      MemorySwap: limits.memoryBytes,
      // Not `NanoCpus`: the Engine rejects a value above the number of processors of the machine.
      CpuPeriod: CPU_PERIOD_US,
      CpuQuota: Math.round(limits.cpus * CPU_PERIOD_US),
      PidsLimit: limits.pids,
      Ulimits: [
        { Name: "nofile", Soft: limits.nofile, Hard: limits.nofile },
        { Name: "fsize", Soft: limits.diskBytes, Hard: limits.diskBytes },
        { Name: "core", Soft: 0, Hard: 0 },
        // The kernel counts the bytes of message queues for each user number, and files made in /dev/mqueue are queues too.
        ...(hardening.seccomp === "corral" ? [{ Name: "msgqueue", Soft: 0, Hard: 0 }] : []),
      ],
      Tmpfs: Object.fromEntries(plan.tmpfs.map((tmpfs) => [tmpfs.path, tmpfsOptions(tmpfs, plan)])),
      Mounts: [...nameMounts(plan, names), ...plan.mounts.map((mount) => mountConfig(mount, volumes))],
      // Output is read from the attached streams alone: a flood must not fill the Engine's disk with a log.
      LogConfig: { Type: "none", Config: {} },
      RestartPolicy: { Name: "no" },
    },
  };
}

function securityOptions(plan: Plan, seccomp: SeccompProfiles): string[] {
  const options: string[] = [];
  if (plan.hardening.noNewPrivileges) options.push("no-new-privileges");
  if (plan.hardening.seccomp === "corral") options.push(`seccomp=${plannedSeccomp(plan, seccomp.corral)}`);
  return options;
}

/** Never recursive: a file system that is mounted below a source is not part of what was granted. */
function mountConfig(mount: PlannedMount, volumes: ContainerSources["volumes"]): Docker.MountSettings {
  const volume = volumes.get(mount);
  if (volume === undefined) return bindConfig(mount.host, mount.path, mount.mode);
  // Read-only by its own mount, as the cell's report shows it. To a writable one the Engine gives no flags of its own.
  const o = mount.mode === "ro" ? "bind,ro,nosuid,nodev" : "bind";
  const options = { type: "none", o, device: volume.device };
  return {
    Target: mount.path,
    Type: "volume",
    Source: volume.name,
    VolumeOptions: { NoCopy: true, Labels: volume.labels, DriverConfig: { Name: "local", Options: options } },
  };
}

function bindConfig(source: string, target: string, mode: PlannedMount["mode"]): Docker.MountSettings {
  return {
    Target: target,
    ReadOnly: mode === "ro",
    Type: "bind",
    Source: source,
    // `NonRecursive` is API 1.40 and not in the types.
    BindOptions: { Propagation: "rprivate", NonRecursive: true } as Docker.MountSettings["BindOptions"] & object,
  };
}

/**
 * With a network the Engine makes these files itself. Without one, newer Engines (28) make an empty `/etc/hostname`. A cell with an allow list
 * has names of its own, as a planned mount.
 */
function nameMounts({ mounts }: Plan, names: NameFiles | null): Docker.MountSettings[] {
  if (names === null) return [];
  const hosts = mounts.some(({ path }) => path === HOSTS_PATH) ? [] : [bindConfig(names.hosts, HOSTS_PATH, "ro")];
  const others = [
    bindConfig(names.resolver, "/etc/resolv.conf", "ro"),
    bindConfig(names.hostname, "/etc/hostname", "ro"),
  ];
  return [...hosts, ...others];
}
