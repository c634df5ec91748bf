interface Rule {
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

/** The kernel reads 32 bits of such an argument, and ignores the bits above. */
const is = (index: number, value: number): Argument => ({
  index,
  value: 0xffffffff,
  valueTwo: value,
  op: "SCMP_CMP_MASKED_EQ",
});

/** By system call, the arguments that make it act on the caller itself, process 0 (`IOPRIO_WHO_PROCESS` is 1). */
const ON_ITSELF: Readonly<Record<string, readonly Argument[]>> = {
  prlimit64: [is(0, 0)],
  setpriority: [is(0, 0), is(1, 0)],
  ioprio_set: [is(0, 1), is(1, 0)],
  sched_setaffinity: [is(0, 0)],
  sched_setattr: [is(0, 0)],
  sched_setparam: [is(0, 0)],
  sched_setscheduler: [is(0, 0)],
};

/**
 * A seccomp profile for a cell that serves many items: like `profile`, but no process can change the limits, priority or
 * processors of another. Otherwise an item could restrict the cell's first process, from which later items inherit.
 */
export function servingSeccomp(profile: string): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly Rule[] };
  const narrowed = parsed.syscalls.flatMap((rule): Rule[] => {
    if (rule.action !== "SCMP_ACT_ALLOW") return [rule];
    const others = rule.names.filter((name) => ON_ITSELF[name] === undefined);
    const own = rule.names.flatMap((name) => {
      const args = ON_ITSELF[name];
      return args === undefined ? [] : [{ ...rule, names: [name], args }];
    });
    return others.length === 0 ? own : [{ ...rule, names: others }, ...own];
  });
  return JSON.stringify({ ...parsed, syscalls: narrowed });
}
