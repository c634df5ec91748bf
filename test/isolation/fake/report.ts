import type { GateReport, ReportedMount } from "../../../src/isolation/gate/report.ts";
import { CAPABILITY_NAMES } from "../../../src/isolation/gate/verify.ts";
import type { Plan, PlannedTmpfs } from "../../../src/isolation/plan/plan.ts";
import type { Pins } from "../../../src/isolation/sources/pin.ts";

/**
 * What the gate of a sound cell would report of this plan. Mounts are what was pinned, whatever the plan says of them;
 * limits are taken as an Engine takes them, for which zero is none.
 */
export function soundReport(plan: Plan, pins: Pins, command: string): GateReport {
  const { hardening, limits } = plan;
  const user = plan.keeper ?? plan.user;
  const bits = hardening.capabilities.map((name) => 1n << BigInt(CAPABILITY_NAMES.indexOf(name)));
  const kept = bits.reduce((set, bit) => set | bit, 0n).toString(16);
  return {
    mounts: [
      reported("/", true, "overlay"),
      reported("/proc", false, "proc"),
      ...plan.tmpfs.map(reportedTmpfs),
      ...plan.mounts.map((mount) => reported(mount.path, mount.mode === "ro", "ext4")),
    ],
    status: new Map([
      ["Uid", `${user.uid}\t${user.uid}\t${user.uid}\t${user.uid}`],
      ["Gid", `${user.gid}\t${user.gid}\t${user.gid}\t${user.gid}`],
      ["Groups", ""],
      ...["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map((set) => [set, kept] as const),
      ["NoNewPrivs", hardening.noNewPrivileges ? "1" : "0"],
      ["Seccomp", "2"],
    ]),
    kernel: "Linux version 6.1",
    limits: new Map([
      ["Max open files", String(limits.nofile)],
      ["Max file size", String(limits.diskBytes)],
    ]),
    namespaces: new Map(["pid", "ipc", "uts"].map((name, at) => [`/proc/self/ns/${name}`, String(4026532000 + at)])),
    interfaces: plan.network === "open" ? ["lo", "eth0"] : ["lo"],
    swapKilobytes: 0,
    cgroup: new Map([
      ["memory.max", String(Math.floor(limits.memoryBytes / 4096) * 4096)],
      ["memory.swap.max", "0"],
      ["pids.max", limits.pids > 0 ? String(limits.pids) : "max"],
      ["cpu.max", `${Math.round(limits.cpus * 100_000)} 100000`],
    ]),
    identities: new Map(
      plan.mounts.map(({ path, host, identity }) => {
        const { device, inode } = pins.sources.get(host) ?? identity;
        return [path, `${device}:${inode}`];
      }),
    ),
    directoryEntered: true,
    command,
    interpreter: null,
    secretsTaken: false,
    flaws: [],
  };
}

function reported(path: string, readOnly: boolean, type: string): ReportedMount {
  return { path, root: "/", readOnly, type, options: [readOnly ? "ro" : "rw", "nosuid", "nodev"], superOptions: [] };
}

function reportedTmpfs({ path, bytes, exec }: PlannedTmpfs): ReportedMount {
  const options = ["rw", "nosuid", "nodev", ...(exec ? [] : ["noexec"])];
  return { ...reported(path, false, "tmpfs"), options, superOptions: [`size=${Math.ceil(bytes / 4096) * 4}k`] };
}
