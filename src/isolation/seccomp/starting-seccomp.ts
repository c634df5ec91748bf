import { type AllowedWays, has, is, narrowedProfile } from "./narrowed-profile.ts";

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
export function startingSeccomp(profile: string): string {
  return narrowedProfile(profile, NOT_ON_THE_FIRST);
}
