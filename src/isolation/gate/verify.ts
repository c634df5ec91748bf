import { readlinkSync } from "node:fs";
import type { Violation } from "../../sandbox/violation.ts";
import { holds } from "../../sandbox/virtual-path.ts";
import { counted } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { programOf } from "../plan/mounts.ts";
import {
  type Enforcement,
  type EnforcementLine,
  type EnforcementLines,
  isOfHostImage,
  type Plan,
  type PlannedMount,
  type PlannedTmpfs,
  SECRETS_PATH,
  SHARED_MEMORY,
  SHOWN_DEVICES,
} from "../plan/plan.ts";
import type { GateReport, ReportedMount } from "./report.ts";

/**
 * Compares the cell's own report with the plan, line by line. Anything weaker than planned refuses the run, and so does
 * a mount that was not planned (docs/facts.md, fact: bind-source-resolved-again and
 * fact: mount-identity-visible). Without violations, the cell is what was planned.
 */
export function verifyCell(
  plan: Plan,
  report: GateReport,
  driver: Enforcement["driver"],
): { readonly enforcement: Enforcement; readonly violations: readonly Violation[] } {
  const violations: Violation[] = [];
  const strayed = plan.mounts.filter((mount) => !isInPlace(mount, report));
  for (const mount of strayed) {
    const reason = "it is not the file or directory that was checked: it was replaced while the cell was starting";
    violations.push({ code: "MOUNT_SOURCE_REFUSED", path: mount.path, reason });
  }
  const isOfProcess = driver === "bwrap" && plan.hardening.limitScope === "process" && report.cgroup.size === 0;
  const requested = requestedLines(plan, isOfProcess);
  const inPlace = plan.mounts.length - strayed.length;
  const actual = actualLines(plan, report, { driver, inPlace, isOfProcess });
  const missing = (Object.keys(requested) as EnforcementLine[])
    .filter((line) => requested[line] !== actual[line] && !(line === "mounts" && strayed.length > 0))
    .map((line) => `${line}: planned ${requested[line]}, found ${actual[line]}`);
  missing.push(...hostNamespaces(report));
  missing.push(...mountFlags(plan, report, driver));
  // Parts of a report that the gate does not write may hide what it wrote.
  missing.push(...report.flaws.map((flaw) => `report: planned the gate's own, found ${flaw}`));
  if (missing.length > 0) violations.push({ code: "ENFORCEMENT_MISSING", missing });
  if (!report.directoryEntered) violations.push({ code: "WORKING_DIR_MISSING", path: plan.workingDir });
  if (report.command === "" || report.interpreter !== null) violations.push(commandNotFound(plan, report));
  const kernel = report.ownKernel ? { kernel: report.kernel } : {};
  return { enforcement: { driver, requested, actual, ...kernel }, violations };
}

function commandNotFound(plan: Plan, { interpreter }: GateReport): Violation {
  const { image, env } = plan;
  const command = programOf(plan);
  const searched = interpreter === null && !command.includes("/") ? env.PATH : undefined;
  return {
    code: "COMMAND_NOT_FOUND",
    command,
    image: image.name,
    ...present({ searched, interpreter: interpreter ?? undefined }),
  };
}

/** The numbers that the kernel gives to the namespaces of the machine itself (include/linux/proc_ns.h). */
const OF_THE_HOST = new Map([
  ["/proc/self/ns/pid", "4026531836"],
  ["/proc/self/ns/ipc", "4026531839"],
  ["/proc/self/ns/uts", "4026531838"],
]);

/** No process of a cell with a kernel of its own has any of this machine's. */
function hostNamespaces({ namespaces, ownKernel }: GateReport): string[] {
  if (ownKernel) return [];
  return [...OF_THE_HOST].flatMap(([path, ofTheHost]) => {
    const own = namespaces.get(path);
    const found = own === undefined ? "unknown" : "the host's";
    return own === undefined || own === ofTheHost
      ? [`namespace ${path.slice(-3)}: planned its own, found ${found}`]
      : [];
  });
}

/**
 * No device of a granted directory can be opened, and no file of it gives the rights of its owner. To a single file, and to a directory that is
 * writable, the Engine gives only what the source's own mount has. A kernel of its own (gVisor) has none of this machine's devices, and programs get no rights.
 */
function mountFlags({ mounts }: Plan, report: GateReport, driver: Enforcement["driver"]): string[] {
  if (report.ownKernel) return [];
  const flagged = mounts.filter(
    (mount) =>
      isInPlace(mount, report) &&
      (driver !== "engine" || mount.origin === "root" || (mount.kind === "directory" && mount.mode === "ro")),
  );
  const needed: [path: string, flags: string[]][] = flagged.map(({ path }) => [path, ["nosuid", "nodev"]]);
  if (driver !== "engine") needed.push(["/", ["nodev"]]);
  return needed.flatMap(([path, flags]) => {
    const seen = report.mounts.findLast((mount) => mount.path === path);
    const found = flags.filter((flag) => seen?.options.includes(flag));
    if (found.length === flags.length) return [];
    return [`mount ${path}: planned ${flags.join(" and ")}, found ${found.join(" and ") || "neither"}`];
  });
}

/** How the kernel shows a group that the user namespace has no number for. */
const WITHOUT_NUMBER = "65534";

/**
 * The group itself may be listed again. bubblewrap's user keeps all groups of Corral's own, which no ordinary user can give up: of what is
 * mounted, a cell may do what Corral may.
 */
function furtherGroups({ status }: GateReport, gids: readonly string[], driver: Enforcement["driver"]): string {
  const known = driver === "bwrap" ? [...gids, WITHOUT_NUMBER] : gids;
  const groups = status.get("Groups")?.split(/\s+/) ?? ["unknown"];
  const further = groups.filter((group) => group !== "" && !known.includes(group));
  return further.length === 0 ? "" : ` and groups ${further.join(" ")}`;
}

function requestedLines(plan: Plan, isOfProcess: boolean): EnforcementLines {
  const { hardening, limits } = plan;
  const first = plan.keeper ?? plan.user;
  const ofCell = { memory: String(pageAligned(limits.memoryBytes)), cpus: limits.cpus.toFixed(2) };
  const { memory, cpus } = isOfProcess ? ofProcess(inKilobytes(limits.memoryBytes)) : ofCell;
  return {
    mounts: `${plan.mounts.length} in place, no others`,
    rootFileSystem: "read-only",
    user: `${first.uid}:${first.gid}`,
    capabilities: hardening.capabilities.length === 0 ? "none" : [...hardening.capabilities].sort().join(" "),
    noNewPrivileges: hardening.noNewPrivileges ? "on" : "off",
    seccomp: "filtering",
    network: networkLine(plan.network),
    memory,
    memoryAndSwap: memory,
    pids: String(limits.pids),
    cpus,
    openFiles: String(limits.nofile),
    fileSize: String(limits.diskBytes),
  };
}

/** As the shell sets it. */
function inKilobytes(bytes: number): string {
  return String(Math.floor(bytes / 1024) * 1024);
}

/** Where there is no control group, as a plan with `limit_scope: process` allows. */
function ofProcess(memoryBytes: string): Pick<EnforcementLines, "memory" | "cpus"> {
  return { memory: `${memoryBytes} for each process`, cpus: "not limited" };
}

function actualLines(
  plan: Plan,
  report: GateReport,
  {
    driver,
    inPlace,
    isOfProcess,
  }: { readonly driver: Enforcement["driver"]; readonly inPlace: number; readonly isOfProcess: boolean },
): EnforcementLines {
  const strangers = report.mounts
    .filter((mount) => !isExpected(mount, plan, report, driver))
    .map((mount) => mount.path);
  const missing = plan.tmpfs.filter(({ path }) => !report.mounts.some((mount) => mount.path === path));
  const others = [
    strangers.length === 0 ? "no others" : `and also ${strangers.join(" ")}`,
    ...(plan.secrets === undefined || isOnTop(report.mounts, SECRETS_PATH) ? [] : [`${SECRETS_PATH} covered`]),
    ...(report.secretsTaken ? [`${SECRETS_PATH} not empty`] : []),
    ...missing.map(({ path }) => `no tmpfs at ${path}`),
  ].join(", ");
  const uids = report.status.get("Uid")?.split(/\s+/) ?? [];
  const gids = report.status.get("Gid")?.split(/\s+/) ?? [];
  const counted = driver === "bwrap" ? { pids: report.limits.get("Max processes") ?? "unknown" } : {};
  const limits = isOfProcess ? limitsOfProcess(report) : { ...limitsOfGroup(report), ...counted };
  return {
    mounts: `${inPlace} in place, ${others}`,
    rootFileSystem: rootMount(report)?.readOnly === true ? "read-only" : "writable",
    user: `${[...new Set(uids)].join("/")}:${[...new Set(gids)].join("/")}${furtherGroups(report, gids, driver)}`,
    capabilities: capabilities(report),
    noNewPrivileges: report.status.get("NoNewPrivs") === "1" ? "on" : "off",
    seccomp: report.status.get("Seccomp") === "2" ? "filtering" : "absent",
    network: network(plan, report.interfaces),
    ...limits,
    openFiles: report.limits.get("Max open files") ?? "unknown",
    fileSize: fileSize(plan, report, driver),
  };
}

/** A shell counts blocks of 512 bytes, and so does not show, or set, the last of these. */
function fileSize(
  { limits: { diskBytes } }: Plan,
  { limits, ownKernel }: GateReport,
  driver: Enforcement["driver"],
): string {
  const size = limits.get("Max file size") ?? "unknown";
  return (ownKernel || driver === "bwrap") && size === String(diskBytes - (diskBytes % 512)) ? String(diskBytes) : size;
}

type LimitLines = Pick<EnforcementLines, "memory" | "memoryAndSwap" | "pids" | "cpus">;

function limitsOfGroup(report: GateReport): LimitLines {
  const memory = report.cgroup.get("memory/memory.limit_in_bytes") ?? report.cgroup.get("memory.max") ?? "unknown";
  const pids = report.cgroup.get("pids/pids.max") ?? report.cgroup.get("pids.max") ?? "unknown";
  return { memory, memoryAndSwap: memoryAndSwap(report, memory), pids, cpus: cpus(report) };
}

/** The kernel counts the processes of the cell's own user namespace. */
function limitsOfProcess({ limits }: GateReport): LimitLines {
  const { memory, cpus } = ofProcess(limits.get("Max data size") ?? "unknown");
  return { memory, memoryAndSwap: memory, pids: limits.get("Max processes") ?? "unknown", cpus };
}

/** True if no mount that was made later is at a directory around it: the kernel lists mounts in their order. */
function isOnTop(mounts: readonly ReportedMount[], path: string): boolean {
  const last = mounts.findLast((mount) => holds(mount.path, path));
  return last?.path === path;
}

/** The last mount made at a path is the visible one. */
function isInPlace(planned: PlannedMount, report: GateReport): boolean {
  const seen = report.mounts.findLast((mount) => mount.path === planned.path);
  const identity = `${planned.identity.device}:${planned.identity.inode}`;
  return (
    seen !== undefined && seen.readOnly === (planned.mode === "ro") && report.identities.get(planned.path) === identity
  );
}

/** What every container has: kernel file systems, and the Engine's three files for host names. */
const ENGINE_MOUNTS = new Set([
  "/",
  "/etc/resolv.conf",
  "/etc/hostname",
  "/etc/hosts",
  "/sbin/docker-init",
  "/usr/sbin/docker-init",
  "/.corral/docker-init",
  "/dev/shm",
]);
const KERNEL_TYPES = new Set(["proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"]);

function isExpected(
  mount: ReportedMount,
  plan: Plan,
  { ownKernel }: GateReport,
  driver: Enforcement["driver"],
): boolean {
  if (plan.mounts.some((planned) => planned.path === mount.path)) return true;
  if (driver === "bwrap" && isOfBwrap(mount)) return true;
  const tmpfs = plan.tmpfs.find((planned) => planned.path === mount.path);
  // It sees file systems in memory that other cells see too, and may write to its own alone.
  if (driver === "bwrap" && mount.type === "tmpfs" && !mount.readOnly) {
    const own = tmpfs ?? SHARED_MEMORY;
    return mount.path === own.path && mount.root === "/" && isPlannedTmpfs(mount, own);
  }
  if (ENGINE_MOUNTS.has(mount.path)) return true;
  if (tmpfs !== undefined) return ownKernel ? isOwnTmpfs(mount, tmpfs) : isPlannedTmpfs(mount, tmpfs);
  // crun hides a file behind this machine's null device, and runc behind the cell's own.
  if (mount.path.startsWith("/proc/") && mount.type === "devtmpfs") return mount.root === "/null";
  return /^\/(proc|sys|dev)(\/|$)/.test(mount.path) && KERNEL_TYPES.has(mount.type);
}

/** A part of this machine's own programs or of its kernel's settings, or one of the devices that every cell has. */
function isOfBwrap({ path, root, type, readOnly, options }: ReportedMount): boolean {
  if (isOfHostImage(path)) return readOnly && options.includes("nosuid") && options.includes("nodev");
  if (path === "/etc") return type === "tmpfs" && readOnly && options.includes("noexec");
  // A machine with systemd has it below `/proc/sys`, and the kernel lets no ordinary user leave it out.
  if (path === "/proc/sys/fs/binfmt_misc") return readOnly && ["autofs", "binfmt_misc"].includes(type);
  // Where Corral itself is in a container, its devices are in memory.
  return (
    ["devtmpfs", "tmpfs"].includes(type) && SHOWN_DEVICES.some((name) => path === `/dev/${name}` && root === `/${name}`)
  );
}

/** The kernel rounds a size up to whole pages, and reports it in units of 1024 bytes. */
function isPlannedTmpfs(mount: ReportedMount, planned: PlannedTmpfs): boolean {
  const needed = ["nosuid", "nodev", ...(planned.exec ? [] : ["noexec"])];
  const size = `size=${(Math.ceil(planned.bytes / 4096) * 4096) / 1024}k`;
  return (
    mount.type === "tmpfs" &&
    needed.every((option) => mount.options.includes(option)) &&
    mount.superOptions.includes(size)
  );
}

/** As it was asked for. */
function isOwnTmpfs(mount: ReportedMount, { exec, bytes }: PlannedTmpfs): boolean {
  const size = `size=${bytes}`;
  return mount.type === "tmpfs" && (exec || mount.options.includes("noexec")) && mount.superOptions.includes(size);
}

function rootMount(report: GateReport): ReportedMount | undefined {
  return report.mounts.findLast((mount) => mount.path === "/");
}

/** Every set counts: capabilities of the bounding set could be gained, ambient ones are inherited. */
function capabilities(report: GateReport): string {
  let held = 0n;
  for (const field of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
    const value = report.status.get(field);
    // gVisor has no ambient ones.
    if (value === undefined && field === "CapAmb" && report.ownKernel) continue;
    if (value === undefined || !/^[0-9a-f]+$/.test(value)) return "unknown";
    held |= BigInt(`0x${value}`);
  }
  const names = CAPABILITY_NAMES.filter((_, bit) => held & (1n << BigInt(bit)));
  const unnamed = held >> BigInt(CAPABILITY_NAMES.length);
  if (unnamed !== 0n) names.push(`0x${unnamed.toString(16)}`);
  return names.length === 0 ? "none" : names.sort().join(" ");
}

/** Devices that some kernels put into every new network namespace: down, without an address, and no process of the cell may bring them up. */
const FALLBACK_TUNNELS = new Set("tunl0 sit0 ip6tnl0 gre0 gretap0 erspan0 ip6gre0 ip_vti0 ip6_vti0".split(" "));

/** A cell with an allow list has the same devices as one without a network. */
function networkLine(network: Plan["network"]): string {
  if (network === "open") return "open";
  if (network === "none") return "loopback only";
  const { names, proxy } = network;
  const hosts = counted(names.length, "host");
  return `loopback only, ${hosts}${proxy ? " and a proxy" : ""} through Corral`;
}

function network(plan: Plan, interfaces: readonly string[]): string {
  if (!interfaces.includes("lo")) return "unknown";
  const others = interfaces.filter((name) => name !== "lo" && !FALLBACK_TUNNELS.has(name));
  if (others.length === 0) return plan.network === "open" ? "absent" : networkLine(plan.network);
  return plan.network === "open" ? "open" : `interfaces ${others.join(" ")}`;
}

/** cgroup v1 counts memory and swap together, v2 swap by itself; a host without swap needs no bound for it. */
function memoryAndSwap(report: GateReport, memory: string): string {
  const together = report.cgroup.get("memory/memory.memsw.limit_in_bytes");
  if (together !== undefined) return together;
  const swap = report.cgroup.get("memory.swap.max");
  return swap === "0" || report.swapKilobytes === 0 ? memory : `${memory} and swap ${swap ?? "unknown"}`;
}

function cpus(report: GateReport): string {
  const together = report.cgroup.get("cpu.max")?.split(" ");
  const quota = Number(together?.[0] ?? report.cgroup.get("cpu/cpu.cfs_quota_us"));
  const period = Number(together?.[1] ?? report.cgroup.get("cpu/cpu.cfs_period_us"));
  return quota > 0 && period > 0 ? (quota / period).toFixed(2) : "unlimited";
}

/** The kernel counts memory in whole pages. */
function pageAligned(bytes: number): number {
  return Math.floor(bytes / 4096) * 4096;
}

/** The capabilities in the order of their bits in the sets of /proc/self/status (capability.h). */
export const CAPABILITY_NAMES = (
  "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST " +
  "NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE " +
  "SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM " +
  "BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)
  .split(" ")
  .map((name) => `CAP_${name}`);

/** Those of this process, by kind, as `/proc` names them: `pid:[4026531836]`. */
export function ownNamespaces(): Readonly<Record<string, string>> {
  const kinds = ["mnt", "pid", "net", "ipc", "uts"];
  return Object.fromEntries(kinds.map((kind) => [kind, readlinkSync(`/proc/self/ns/${kind}`)]));
}
