import type { Plan } from "../plan/plan.ts";

interface SyscallRule {
  readonly names: readonly string[];
  readonly action: string;
  readonly args?: readonly Argument[];
}

interface Argument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo: number;
  readonly op: string;
}

/** By system call, the arguments with which it is allowed: each list is a way. */
type AllowedWays = Readonly<Record<string, readonly (readonly Argument[])[]>>;

/** An argument whose bits of `mask` are those of `value`. */
const has = (index: number, mask: number, value: number): Argument => ({
  index,
  value: mask,
  valueTwo: value,
  op: "SCMP_CMP_MASKED_EQ",
});

/** The kernel reads 32 bits of such an argument, and ignores the bits above. */
const is = (index: number, value: number): Argument => has(index, 0xffffffff, value);

/**
 * Commands of fcntl(2) with which the kernel signals a process later, also when the item has ended: F_SETOWN, F_SETSIG,
 * F_SETOWN_EX, F_SETLEASE, F_NOTIFY and F_SETDELEG. A rule that allows one of them is left out.
 */
const LATER_SIGNALS = [8, 10, 15, 1024, 1026, 1040];

/** Commands of ioctl(2) that do what F_SETOWN does: FIOSETOWN and SIOCSPGRP. */
const LATER_SIGNALS_BY_IOCTL = [0x8901, 0x8902];

/**
 * By system call, the arguments with which it acts on the caller itself and ends with it, each list a way that is allowed.
 * Process 0 is the caller; `IOPRIO_WHO_PROCESS` is 1.
 */
const ON_ITSELF: AllowedWays = {
  prlimit64: [[is(0, 0)]],
  setpriority: [[is(0, 0), is(1, 0)]],
  ioprio_set: [[is(0, 1), is(1, 0)]],
  sched_setaffinity: [[is(0, 0)]],
  sched_setattr: [[is(0, 0)]],
  sched_setparam: [[is(0, 0)]],
  sched_setscheduler: [[is(0, 0)]],
};

/**
 * A seccomp profile for a cell that serves many items: like `profile`, but no process can change the limits, priority or
 * processors of another, nor have the kernel signal a process later. Otherwise an item could restrict the cell's first
 * process, from which later items inherit, or end a later item.
 */
export function servingSeccomp(profile: string): string {
  return narrowedProfile(
    profile,
    ON_ITSELF,
    (rule) =>
      (rule.names.includes("fcntl") && LATER_SIGNALS.some((command) => allows(rule, 1, command))) ||
      (rule.names.includes("ioctl") && LATER_SIGNALS_BY_IOCTL.some((command) => allows(rule, 1, command))),
  );
}

/**
 * An argument that is any number but 1, which is the first process. A rule can only compare bits for equality: the lowest bit
 * is not set, or any other is.
 */
const notTheFirst = (index: number) => [
  has(index, 1, 0),
  ...Array.from({ length: 31 }, (_, bit) => has(index, 2 ** (bit + 1), 2 ** (bit + 1))),
];

/**
 * By system call, the arguments with which it does not act on the first process. Process 0 is the caller, `PRIO_PROCESS` is 0 and
 * `IOPRIO_WHO_PROCESS` is 1. The first process has one thread.
 */
const NOT_ON_THE_FIRST: AllowedWays = {
  prlimit64: notTheFirst(0).map((argument) => [argument]),
  setpriority: notTheFirst(1).map((argument) => [is(0, 0), argument]),
  sched_setaffinity: notTheFirst(0).map((argument) => [argument]),
  ioprio_set: [[is(0, 1), is(1, 0)]],
  sched_setattr: [[is(0, 0)]],
  sched_setparam: [[is(0, 0)]],
  sched_setscheduler: [[is(0, 0)]],
};

/**
 * A seccomp profile for a cell whose first process starts a session's commands: like `profile`, but no process can change the limits,
 * priority or processors of the first process. Otherwise a command could restrict it, and so every command after itself.
 */
function startingSeccomp(profile: string): string {
  return narrowedProfile(profile, NOT_ON_THE_FIRST);
}

/** The profile of a plan's cell, as JSON text in the Engine's format. `strictest`: the profile `corral`. */
export function plannedSeccomp(
  { hardening, serves, startsCommands }: Pick<Plan, "hardening" | "serves" | "startsCommands">,
  strictest: string,
): string {
  const watching = hardening.fileWatches ? allowing(strictest, "inotify_init1") : strictest;
  // Files in memory that can be executed.
  const profile = hardening.tmpExec ? allowing(watching, "memfd_create") : watching;
  if (serves === true) return servingSeccomp(profile);
  return startsCommands === true ? startingSeccomp(profile) : profile;
}

/** The rules of a system call become one that allows it, and what is beside it in them. */
function allowing(profile: string, name: string): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly SyscallRule[] };
  const own = parsed.syscalls.find(({ names }) => names.includes(name));
  if (own === undefined) throw new Error(`the seccomp profile has no rule of ${name}`);
  const others = parsed.syscalls.filter(({ names }) => !names.includes(name));
  return JSON.stringify({ ...parsed, syscalls: [...others, { names: own.names, action: "SCMP_ACT_ALLOW" }] });
}

/** A profile like `profile`, which allows these system calls in these ways alone, and no rule that `isLeftOut`. */
function narrowedProfile(
  profile: string,
  ways: AllowedWays,
  isLeftOut: (rule: SyscallRule) => boolean = () => false,
): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly SyscallRule[] };
  const narrowed = parsed.syscalls.flatMap((rule): SyscallRule[] => {
    if (rule.action !== "SCMP_ACT_ALLOW") return [rule];
    if (isLeftOut(rule)) return [];
    const others = rule.names.filter((name) => ways[name] === undefined);
    const own = rule.names.flatMap((name) =>
      (ways[name] ?? []).map(
        (args): SyscallRule => ({ ...rule, names: [name], args: [...(rule.args ?? []), ...args] }),
      ),
    );
    return others.length === 0 ? own : [{ ...rule, names: others }, ...own];
  });
  return JSON.stringify({ ...parsed, syscalls: narrowed });
}

/** True if the rule may allow this value of an argument. */
function allows({ args = [] }: SyscallRule, index: number, value: number): boolean {
  return args.every(
    (own) =>
      own.index !== index ||
      own.op !== "SCMP_CMP_MASKED_EQ" ||
      // BigInt: these are 64 bits.
      (BigInt(value) & BigInt(own.value)) === BigInt(own.valueTwo),
  );
}

/** A filter of system calls as an OCI runtime reads it (OCI runtime specification, `linux.seccomp`). */
export interface OciSeccomp {
  readonly defaultAction: string;
  readonly architectures: readonly string[];
  readonly syscalls: readonly OciRule[];
}

export interface OciRule {
  readonly names: readonly string[];
  readonly action: string;
  readonly errnoRet?: number;
  readonly args?: readonly OciArgument[];
}

export interface OciArgument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo?: number;
  readonly op: string;
}

interface EngineRule extends OciRule {
  readonly includes?: { readonly arches?: readonly string[] };
}

interface EngineProfile {
  readonly defaultAction: string;
  readonly archMap: readonly { readonly architecture: string; readonly subArchitectures: readonly string[] }[];
  readonly syscalls: readonly EngineRule[];
}

/** By the name of Node: as the Engine calls a processor, and as the kernel's filters do. */
const ARCHITECTURES: Readonly<Record<string, { readonly engine: string; readonly filter: string }>> = {
  x64: { engine: "amd64", filter: "SCMP_ARCH_X86_64" },
  arm64: { engine: "arm64", filter: "SCMP_ARCH_AARCH64" },
};

const PROFILE_KEYS = ["defaultAction", "archMap", "syscalls"];
const RULE_KEYS = ["names", "action", "errnoRet", "args", "includes"];

/**
 * What the Engine makes of a profile in its own format, for this machine's processor.
 *
 * @throws Error for anything that is not translated here: a condition that was left out would make another filter.
 */
export function ociSeccomp(profile: string, arch: string): OciSeccomp {
  const { defaultAction, archMap, syscalls, ...others } = JSON.parse(profile) as EngineProfile;
  refuseOthers("the profile", Object.keys(others), PROFILE_KEYS);
  const own = ARCHITECTURES[arch];
  const architecture = archMap.find((each) => each.architecture === own?.filter);
  if (own === undefined || architecture === undefined)
    throw new Error(`the seccomp profile has no part for processors of the kind ${arch}`);
  return {
    defaultAction,
    architectures: [architecture.architecture, ...architecture.subArchitectures],
    syscalls: syscalls.flatMap((rule) => {
      refuseOthers(`the rule of ${rule.names[0]}`, Object.keys(rule), RULE_KEYS);
      refuseOthers(`a condition of ${rule.names[0]}`, Object.keys(rule.includes ?? {}), ["arches"]);
      const { includes, ...translated } = rule;
      return includes?.arches?.includes(own.engine) === false ? [] : [translated];
    }),
  };
}

/** The filters of all plans, each translated once. `strictest`: as for {@link plannedSeccomp}. */
export class OciFilters {
  readonly #strictest: string;
  /** By their text; as many as there are kinds of plans. */
  readonly #translated = new Map<string, OciSeccomp>();

  constructor(strictest: string) {
    this.#strictest = strictest;
  }

  of(plan: Parameters<typeof plannedSeccomp>[0]): OciSeccomp {
    const profile = plannedSeccomp(plan, this.#strictest);
    const filter = this.#translated.get(profile) ?? ociSeccomp(profile, process.arch);
    this.#translated.set(profile, filter);
    return filter;
  }
}

function refuseOthers(what: string, keys: readonly string[], known: readonly string[]): void {
  const unknown = keys.filter((key) => !known.includes(key));
  if (unknown.length > 0) throw new Error(`${what} in the seccomp profile cannot be translated: ${unknown.join(", ")}`);
}
