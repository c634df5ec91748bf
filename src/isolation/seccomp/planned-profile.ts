import type { Plan } from "../plan/plan.ts";
import { type AllowedWays, allows, has, is, narrowedProfile } from "./narrowed-profile.ts";

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

interface Rule {
  readonly names: readonly string[];
  readonly action: string;
}

/** The rules of a system call become one that allows it, and what is beside it in them. */
function allowing(profile: string, name: string): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly Rule[] };
  const own = parsed.syscalls.find(({ names }) => names.includes(name));
  if (own === undefined) throw new Error(`the seccomp profile has no rule of ${name}`);
  const others = parsed.syscalls.filter(({ names }) => !names.includes(name));
  return JSON.stringify({ ...parsed, syscalls: [...others, { names: own.names, action: "SCMP_ACT_ALLOW" }] });
}
