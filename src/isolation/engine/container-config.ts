import { randomBytes, timingSafeEqual } from "node:crypto";
import { readFile } from "node:fs/promises";
import type Docker from "dockerode";
import { z } from "zod";
import { sha256 } from "../../platform/sha256.ts";
import { formatOwner, type Owner, sealOf } from "../../state/owner.ts";
import { present } from "../../text/present.ts";
import { collectSockets, heldBytes } from "../disk/unnamed-files.ts";
import { gateCommand, gateEnvironment } from "../gate/report.ts";
import { type ControlGroup, findControlGroup, socketBytes, type UsageMeasure } from "../kernel/control-group.ts";
import { type FirstProcess, findFirstProcess } from "../kernel/first-process.ts";
import type { NameFiles } from "../network/name-files.ts";
import { tmpfsOptions } from "../plan/mounts.ts";
import { CELL_HOST_NAME, type Enforcement, HOSTS_PATH, type Plan, type PlannedMount } from "../plan/plan.ts";
import type { CellUsageNow } from "../port/cell.ts";
import { type Labelled, labelsFor, type Maker, RUN_LABEL, readLabels } from "../port/labels.ts";
import { plannedSeccomp } from "../seccomp/planned-profile.ts";
import type { Pins } from "../sources/pin.ts";
import { asked } from "./answers/asked.ts";
import type { ChosenRuntime } from "./own-kernel.ts";

/** Where Engines put a container's control groups: with their own names, or with systemd's. Null if they are in neither place, as with an Engine that runs in a container. */
export function controlGroupOf(container: string): ControlGroup | null {
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
  readonly runtime: ChosenRuntime;
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
  { volumes, names, runtime }: ContainerSources,
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
    Env: Object.entries(gateEnvironment(plan)).map(([key, value]) => `${key}=${value}`),
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
      // What a worker may write of its root is mounted over it: nothing bounds a layer of the Engine's.
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      CapAdd: [...hardening.capabilities],
      SecurityOpt: securityOptions(plan, seccomp),
      Privileged: false,
      // A first process of the worker's user is its own init: the worker could signal any other process of its user.
      Init: plan.serves !== true && plan.startsCommands !== true,
      IpcMode: "private",
      ...present({ Runtime: runtime.name ?? undefined }),
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
      Mounts: [...nameMounts(plan, names), ...plan.mounts.map((mount) => mountConfig(mount, volumes, runtime))],
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
function mountConfig(
  mount: PlannedMount,
  volumes: ContainerSources["volumes"],
  { isGvisor }: ChosenRuntime,
): Docker.MountSettings {
  const volume = volumes.get(mount);
  if (volume === undefined) return bindConfig(mount.host, mount.path, mount.mode);
  // Read-only by its own mount, as the cell's report shows it. To a writable one the Engine gives no flags of its own.
  const o = mount.mode === "ro" ? "bind,ro,nosuid,nodev" : "bind";
  const options = { type: "none", o, device: volume.device };
  return {
    Target: mount.path,
    Type: "volume",
    Source: volume.name,
    // gVisor does not show the flags of the source.
    ...(isGvisor ? { ReadOnly: mount.mode === "ro" } : {}),
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

/**
 * How a directory is passed to the daemon: as a volume that it makes with the container, bound to the pinned descriptor, so
 * that it never resolves the directory's path again (docs/facts.md, fact: pinned-by-volume).
 */
interface PinnedVolume {
  /** Sealed, and of this volume alone: an Engine that ends may leave nothing else of it (fact: volume-without-labels). */
  readonly name: string;
  /** `/proc/PID/fd/N` of this process. */
  readonly device: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** One for each directory of the plan. */
export function pinnedVolumes(plan: Plan, pins: Pins, maker: Maker): ReadonlyMap<PlannedMount, PinnedVolume> {
  const volumes = new Map<PlannedMount, PinnedVolume>();
  for (const mount of plan.mounts) {
    if (mount.kind !== "directory") continue;
    const device = pins.sources.get(mount.host)?.descriptorPath;
    if (device === undefined) throw new Error(`the source of ${mount.path} was not pinned`);
    volumes.set(mount, { name: newName(maker), device, labels: labelsFor(maker, "volume", device, plan) });
  }
  return volumes;
}

const NAME = /^corral-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{64})$/;
/** The name that the Engine gives to a volume without one. Earlier versions of Corral gave none. */
const GIVEN_NAME = /^[0-9a-f]{64}$/;

function newName({ owner, sealKey }: Maker): string {
  const [mark, once] = [ownerMark(owner), randomBytes(8).toString("hex")];
  return `corral-${mark}-${once}-${nameSeal(sealKey, mark, once)}`;
}

/** Stands for the owner in the names of its volumes. */
export function ownerMark(owner: Owner): string {
  return sha256(formatOwner(owner)).slice(0, 16);
}

function nameSeal(sealKey: Buffer, mark: string, once: string): string {
  return sealOf(sealKey, { kind: "volume", name: once, run: "", owner: mark });
}

/** The mark of the owner who gave this name to a volume; null if none of this state directory did. */
function markIn(sealKey: Buffer, name: string): string | null {
  const [, mark = "", once = "", seal = ""] = NAME.exec(name) ?? [];
  const expected = Buffer.from(nameSeal(sealKey, mark, once));
  return seal.length === expected.length && timingSafeEqual(Buffer.from(seal), expected) ? mark : null;
}

/** What the Engine reports of a volume. */
type Told = Pick<Docker.VolumeInspectInfo, "Name" | "Labels" | "Options">;

/**
 * The owner of a volume; null if Corral did not make it, or its Engine left it without labels. The seal of the labels covers the
 * directory that it shows: a volume that shows another one is not Corral's, even with the same labels.
 */
export function ownerOfVolume(sealKey: Buffer, { Name, Labels, Options }: Told): Labelled | null {
  const device = Options?.device;
  if (device === undefined || (!GIVEN_NAME.test(Name) && markIn(sealKey, Name) === null)) return null;
  return readLabels(sealKey, "volume", device, Labels);
}

/** The mark of the owner of a volume that its Engine left without labels and options; null for any other volume. */
export function markOfBareVolume(sealKey: Buffer, { Name, Labels, Options }: Told): string | null {
  const isBare = Object.keys({ ...Labels, ...Options }).length === 0;
  return isBare ? markIn(sealKey, Name) : null;
}

const Listed = z.object({ Volumes: z.array(z.looseObject({ Name: z.string() })).nullable() });

/** The volumes with labels of Corral's, and those with such names. */
export async function listVolumes(docker: Docker): Promise<Docker.VolumeInspectInfo[]> {
  const listed = async (filters: Record<string, string[]>) => {
    const { Volumes } = await asked(() => docker.listVolumes({ filters }), Listed);
    return (Volumes ?? []) as unknown[] as Docker.VolumeInspectInfo[];
  };
  const both = await Promise.all([listed({ label: [RUN_LABEL] }), listed({ name: ["corral-"] })]);
  return [...new Map(both.flat().map((volume) => [volume.Name, volume])).values()];
}
