import type Docker from "dockerode";
import { gateCommand } from "../gate/script.ts";
import type { NameFiles } from "../network/name-files.ts";
import { CELL_HOST_NAME, HOSTS_PATH, type Plan, type PlannedMount } from "../plan/plan.ts";
import { tmpfsOptions } from "../plan/tmpfs-options.ts";
import { plannedSeccomp } from "../seccomp/planned-profile.ts";
import type { PinnedVolume } from "./pinned-volume.ts";

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
    // Its namespace has a loopback device and nothing else (docs/architecture.md, fact: network-disabled).
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
      ...(hardening.runtime === undefined ? {} : { Runtime: hardening.runtime }),
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

/** With a network the Engine makes these files itself. A cell with an allow list has names of its own, as a planned mount. */
function nameMounts({ mounts }: Plan, names: NameFiles | null): Docker.MountSettings[] {
  if (names === null) return [];
  const hosts = mounts.some(({ path }) => path === HOSTS_PATH) ? [] : [bindConfig(names.hosts, HOSTS_PATH, "ro")];
  return [...hosts, bindConfig(names.resolver, "/etc/resolv.conf", "ro")];
}
