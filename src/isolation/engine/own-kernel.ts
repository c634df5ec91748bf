import { statSync } from "node:fs";
import type Docker from "dockerode";
import { z } from "zod";
import { originalOf } from "../gate/gate-streams.ts";
import { type GateReport, parseMounts, type ReportedMount } from "../gate/report.ts";
import { type ControlGroup, kernelText } from "../kernel/control-group.ts";
import { GATE_PATH, type Plan } from "../plan/plan.ts";
import { asked } from "./answers/asked.ts";

const RUNTIME = {
  path: z.string().nullish(),
  runtimeArgs: z.array(z.string()).nullish(),
  /** The shim of containerd, in place of a path. */
  runtimeType: z.string().nullish(),
};
const Runtimes = z.object({
  Runtimes: z.record(z.string(), z.looseObject(RUNTIME).nullish()).nullish(),
});

/** The Engine's runtime for a cell. */
export interface ChosenRuntime {
  /** Null: its default. */
  readonly name: string | null;
  /** What its Engine starts it with. */
  readonly args: readonly string[];
  /** True for gVisor, whose cells have a kernel of their own. */
  readonly isGvisor: boolean;
  /** True for Kata, whose cells are virtual machines: by its program or shim, or by its name, which another program may have. */
  readonly isKata?: boolean;
}

export const ENGINES_OWN: ChosenRuntime = { name: null, args: [], isGvisor: false };

/** A policy's word for the Engine's own choice, as the last of a list. */
const DEFAULT = "default";

/** The first runtime of a policy that the Engine has; the only one also if the Engine does not have it, and refuses it then. */
export async function chosenRuntime(docker: Docker, { hardening: { runtime } }: Plan): Promise<ChosenRuntime> {
  if (runtime === undefined) return ENGINES_OWN;
  const known = (await asked(() => docker.info(), Runtimes)).Runtimes ?? {};
  const wanted = typeof runtime === "string" ? [runtime] : runtime;
  const name = wanted.find((each) => each === DEFAULT || known[each] !== undefined) ?? wanted[0] ?? DEFAULT;
  if (name === DEFAULT) return ENGINES_OWN;
  const { path, runtimeArgs, runtimeType } = known[name] ?? {};
  const isKata = [name, path ?? "", runtimeType ?? ""].some((word) => /(^|[._/-])kata([._-]|$)/.test(word));
  const isGvisor = /(^|\/)runsc$/.test(path ?? "");
  return { name, args: runtimeArgs ?? [], isGvisor, ...(isKata ? { isKata } : {}) };
}

/** The threads of gVisor's own kernel count for the limit of processes; with fewer it ends in the middle. */
const LEAST_PIDS = 256;
/** How an Engine has to start gVisor: names of an older version beside the present ones. */
const NEEDED_ARGS = [
  { any: ["--oci-seccomp"], for: "the filter of system calls" },
  { any: ["--host-uds=open", "--host-uds=all", "--fsgofer-host-uds"], for: "the socket for calls" },
];

/** What cells of this runtime could not keep of a plan, in words for people; empty if nothing is known. */
export function notForRuntime(plan: Plan, { name, args, isGvisor, isKata = false }: ChosenRuntime): string[] {
  if (isKata)
    return [
      `runtime: ${name} is Kata or has its name. Which directories are mounted in a virtual machine cannot be seen from this machine. Use runsc or the Engine's default`,
    ];
  if (!isGvisor) return [];
  const missing = NEEDED_ARGS.filter(({ any }) => !any.some((arg) => args.includes(arg))).map(
    (needed) => `${needed.for}: ${name} has it only with ${needed.any[0]} in its runtimeArgs (daemon.json)`,
  );
  if (plan.limits.pids < LEAST_PIDS)
    missing.push(
      `pids: threads of ${name} count too, so it needs at least ${LEAST_PIDS}, planned ${plan.limits.pids}. Set limits.pids`,
    );
  if (typeof plan.network !== "string")
    missing.push(`network: the sockets of an allow list are this machine's, and ${name} has a kernel of its own`);
  if (plan.hardening.seccomp !== "corral")
    missing.push("seccomp: under the Engine's own profile a process could trace Corral's gate there");
  if (plan.serves) missing.push(`reuse: what an item leaves in ${name} cannot be looked for. Use \`reuse: fresh\``);
  return missing;
}

/**
 * The plan of a cell of gVisor: it lets no program start that cannot be read, so the gate is the one that everyone can read. No process can
 * trace another one there either, since the filter of system calls forbids it.
 */
export function planWithKernel(plan: Plan, { isGvisor }: ChosenRuntime): Plan {
  if (!isGvisor) return plan;
  const mounts = plan.mounts.map((mount) => {
    if (mount.path !== GATE_PATH) return mount;
    const host = originalOf(mount.host);
    const { dev, ino } = statSync(host, { bigint: true });
    return { ...mount, host, identity: { device: String(dev), inode: String(ino) } };
  });
  return { ...plan, mounts };
}

/**
 * What the gate of a cell reports whose runtime has a kernel of its own (gVisor), with what only this machine's kernel shows: the limits of the
 * cell's control groups, and which directories the gofer has, the runtime's one process that opens files. Of any other runtime, the report itself.
 * What cannot be seen is missing in the report, which no check accepts.
 */
export function seenFromOutside(report: GateReport, { plan, group, runtime }: SeenCell): GateReport {
  if (!runtime.isGvisor) return report;
  if (report.kernel === kernelText("/proc/version")?.trim())
    return { ...report, flaws: [...report.flaws, "this machine's kernel, and not one of its own"] };
  const gofer = goferOf(group?.processes() ?? []);
  const outside = gofer === null ? [] : parseMounts(kernelText(`/proc/${gofer}/mountinfo`) ?? "");
  return {
    ...report,
    ownKernel: true,
    cgroup: new Map(group?.limits() ?? []),
    identities: gofer === null ? new Map() : identitiesIn(gofer, outside, plan),
    namespaces: new Map(),
  };
}

export interface SeenCell {
  readonly plan: Plan;
  readonly group: ControlGroup | null;
  readonly runtime: ChosenRuntime;
}

/** Null if there is not exactly one. */
function goferOf(pids: readonly number[]): number | null {
  const gofers = pids.filter((pid) => kernelText(`/proc/${pid}/cmdline`)?.startsWith("runsc-gofer\0"));
  return gofers.length === 1 ? (gofers[0] ?? null) : null;
}

/** `device:inode` of what is mounted at the places of a plan. A mount point is no link, and no part of its path is. */
function identitiesIn(gofer: number, outside: readonly ReportedMount[], { mounts }: Plan): Map<string, string> {
  const mounted = new Set(outside.map(({ path }) => path));
  const seen = new Map<string, string>();
  for (const { path } of mounts) {
    if (!mounted.has(path)) continue;
    try {
      const { dev, ino } = statSync(`/proc/${gofer}/root${path}`, { bigint: true });
      seen.set(path, `${dev}:${ino}`);
    } catch {
      // Only root may look into it, or it has ended.
    }
  }
  return seen;
}
