import { type AllowedWays, allows, has, is, narrowedProfile } from "./narrowed-profile.ts";

/**
 * Commands of fcntl(2) with which the kernel signals a process later, also when the item has ended: F_SETOWN, F_SETSIG,
 * F_SETOWN_EX, F_SETLEASE, F_NOTIFY and F_SETDELEG. A rule that allows one of them is left out.
 */
const LATER_SIGNALS = [8, 10, 15, 1024, 1026, 1040];

/**
 * Every command of ioctl(2) but FIOSETOWN (0x8901) and SIOCSPGRP (0x8902), which do what F_SETOWN does. A rule can only
 * compare bits for equality: the second byte is another than 0x89, or one of the upper six bits of the first is set.
 */
const IOCTL_COMMANDS = [
  ...[8, 9, 10, 11, 12, 13, 14, 15].map((bit) => has(1, 1 << bit, ~0x8900 & (1 << bit))),
  ...[2, 3, 4, 5, 6, 7].map((bit) => has(1, 1 << bit, 1 << bit)),
  has(1, 0xffff, 0x8903),
];

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
  ioctl: IOCTL_COMMANDS.map((argument) => [argument]),
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
    (rule) => rule.names.includes("fcntl") && LATER_SIGNALS.some((command) => allows(rule, 1, command)),
  );
}
