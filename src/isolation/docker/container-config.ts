import type Docker from "dockerode";
import { gateCommand } from "../gate/script.ts";
import type { Plan, PlannedMount, PlannedTmpfs, PlannedUser } from "../plan.ts";
import { servingSeccomp } from "./serving-seccomp.ts";

/** How the daemon is told of a mount's source: a pinned directory by its volume, a file by its path. */
export type VolumeNames = ReadonlyMap<PlannedMount, string>;

/** Seccomp profiles by the policy's names, as JSON text; `engine` needs none. */
export interface SeccompProfiles {
  readonly corral: string;
}

/** The kernel's own default. */
const CPU_PERIOD_US = 100_000;

/** Translates a plan into the Engine's words, and decides nothing. */
export function containerConfig(
  plan: Plan,
  name: string,
  labels: Record<string, string>,
  volumes: VolumeNames,
  seccomp: SeccompProfiles,
): Docker.ContainerCreateOptions {
  const { hardening, limits } = plan;
  return {
    name,
    Image: plan.image.id,
    Labels: labels,
    Hostname: "corral",
    User: userOption(plan.holder ?? plan.user),
    WorkingDir: plan.workingDir,
    Env: Object.entries(plan.env).map(([key, value]) => `${key}=${value}`),
    Entrypoint: gateCommand(plan),
    Cmd: [],
    // An image's health check would run its own commands in the cell, beside the worker's.
    Healthcheck: { Test: ["NONE"] },
    Tty: false,
    OpenStdin: true,
    StdinOnce: true,
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    HostConfig: {
      NetworkMode: plan.network === "none" ? "none" : "bridge",
      ReadonlyRootfs: hardening.readOnlyRoot,
      CapDrop: ["ALL"],
      CapAdd: [...hardening.capabilities],
      SecurityOpt: securityOptions(plan, seccomp),
      Privileged: false,
      // A serving cell's first process is its own init: nothing else could not be signalled by the worker.
      Init: plan.serves !== true,
      IpcMode: "private",
      ...(hardening.runtime === undefined ? {} : { Runtime: hardening.runtime }),
      Memory: limits.memoryBytes,
      MemorySwap: limits.memoryBytes,
      // Not as `NanoCpus`, of which the Engine takes no more than the machine has, though more would be no less a bound.
      CpuPeriod: CPU_PERIOD_US,
      CpuQuota: Math.round(limits.cpus * CPU_PERIOD_US),
      PidsLimit: limits.pids,
      Ulimits: [
        { Name: "nofile", Soft: limits.nofile, Hard: limits.nofile },
        { Name: "fsize", Soft: limits.fileBytes, Hard: limits.fileBytes },
        { Name: "core", Soft: 0, Hard: 0 },
      ],
      Tmpfs: Object.fromEntries(plan.tmpfs.map((tmpfs) => [tmpfs.path, tmpfsOptions(tmpfs, plan)])),
      Mounts: plan.mounts.map((mount) => mountConfig(mount, volumes)),
      // Output is read from the attached streams alone: a flood must not fill the Engine's disk with a log.
      LogConfig: { Type: "none", Config: {} },
      RestartPolicy: { Name: "no" },
      // The host's name servers are nobody's business in a cell that has no network.
      ...(plan.network === "none" ? { Dns: ["127.0.0.1"], DnsSearch: ["."] } : {}),
    },
  };
}

function userOption({ uid, gid }: PlannedUser): string {
  return `${uid}:${gid}`;
}

function securityOptions(plan: Plan, seccomp: SeccompProfiles): string[] {
  const options: string[] = [];
  if (plan.hardening.noNewPrivileges) options.push("no-new-privileges");
  const profile = plan.serves === true ? servingSeccomp(seccomp.corral) : seccomp.corral;
  if (plan.hardening.seccomp === "corral") options.push(`seccomp=${profile}`);
  return options;
}

function tmpfsOptions(tmpfs: PlannedTmpfs, plan: Plan): string {
  const owner = tmpfs.mode === "1777" ? "" : `,uid=${plan.user.uid},gid=${plan.user.gid}`;
  return `rw,nosuid,nodev,${tmpfs.exec ? "exec" : "noexec"},size=${tmpfs.bytes},mode=${tmpfs.mode}${owner}`;
}

/** Never recursive: what another file system has mounted below a source is not part of what was granted. */
function mountConfig(mount: PlannedMount, volumes: VolumeNames): Docker.MountSettings {
  const volume = volumes.get(mount);
  const common = { Target: mount.path, ReadOnly: mount.mode === "ro" };
  if (volume !== undefined) {
    return {
      ...common,
      Type: "volume",
      Source: volume,
      VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: "local", Options: {} } },
    };
  }
  return {
    ...common,
    Type: "bind",
    Source: mount.host,
    // `NonRecursive` is API 1.40 and not in the types.
    BindOptions: { Propagation: "rprivate", NonRecursive: true } as Docker.MountSettings["BindOptions"] & object,
  };
}
