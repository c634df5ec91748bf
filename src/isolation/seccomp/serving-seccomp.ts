import { type AllowedWays, allows, is, narrowedProfile } from "./narrowed-profile.ts";

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
