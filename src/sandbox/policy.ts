import { DRIVER_CHOICES, type DriverChoice, driverOfBoth } from "./driver-choice.ts";
import type { Limits } from "./limits.ts";
import type { Network } from "./network/rule.ts";

/** A row of {@link HARDENING}: what a line may say, what is strictest, and how it is named. */
export type HardeningRow = {
  /** The key in a policy file, and the line's name in `corral explain` and in refusals. */
  readonly key: string;
  /** What a policy allows that is weaker in this line. */
  readonly weaker: string;
  /** What the strictest value means, for the documentation. */
  readonly meaning: string;
} & (
  | { readonly kind: "switch"; readonly strictest: boolean }
  /** Fewer are stricter. */
  | { readonly kind: "capabilities"; readonly strictest: readonly string[] }
  /** From the loosest to the strictest. */
  | { readonly kind: "level"; readonly levels: readonly string[]; readonly strictest: string }
  /**
   * The name of an Engine runtime, or several, of which the first counts that the Engine has. Any is stricter than none. Only the first
   * ones of a list are known to be no weaker than the list.
   */
  | { readonly kind: "runtime"; readonly strictest?: undefined }
  /** Any is stricter than `auto`, which is as none; but `seatbelt` is looser than all, as it is no container. */
  | { readonly kind: "driver"; readonly choices: readonly DriverChoice[]; readonly strictest?: undefined }
);

/**
 * Every line of a policy that hardens a cell, one row each. The format of policy files, {@link Hardening}, {@link BASELINE},
 * the comparison of two policies, the refusals, `corral explain` and the table in policies/README.md are derived from it:
 * a new line is a row here, its enforcement in a driver, and a test.
 */
export const HARDENING = {
  rootUser: {
    key: "root_user",
    kind: "switch",
    strictest: false,
    weaker: "allows user 0",
    meaning: "a worker is never user 0",
  },
  readOnlyRoot: {
    key: "read_only_root",
    kind: "switch",
    strictest: true,
    weaker: "lets workers write their root file system",
    meaning: "no worker writes the root file system of its container; `false`: those with `root: writable` do",
  },
  noNewPrivileges: {
    key: "no_new_privileges",
    kind: "switch",
    strictest: true,
    weaker: "lets programs gain privileges",
    meaning: "set-user-ID programs and file capabilities give no privileges",
  },
  capabilities: {
    key: "capabilities",
    kind: "capabilities",
    strictest: [],
    weaker: "keeps more capabilities",
    meaning: "every capability is dropped; a list names those that are kept (`CAP_…`)",
  },
  seccomp: {
    key: "seccomp",
    kind: "level",
    levels: ["engine", "corral"],
    strictest: "corral",
    weaker: "filters fewer system calls",
    meaning: "the profile in `seccomp.json`; `engine` is the Engine's own, which allows more",
  },
  fileWatches: {
    key: "file_watches",
    kind: "switch",
    strictest: false,
    weaker: "lets programs watch files",
    meaning: "no `inotify`: the kernel counts it for each user number, so one cell could take it from all others",
  },
  tmpExec: {
    key: "tmp_exec",
    kind: "switch",
    strictest: false,
    weaker: "makes files in /tmp, home and memory executable",
    meaning: "files in `/tmp`, home and in memory (`memfd_create`) cannot be executed",
  },
  secrets: {
    key: "secrets",
    kind: "level",
    levels: ["allowed", "none"],
    strictest: "none",
    weaker: "lets workers have secrets inside",
    meaning: "no secret is ever inside of a cell; `allowed`: those that the project, the callers and the worker name",
  },
  hostExecuted: {
    key: "host_executed",
    kind: "level",
    levels: ["allow", "ask"],
    strictest: "ask",
    weaker: "lets a general yes cover what programs of the host execute",
    meaning:
      "what programs of the host execute by themselves (hooks, settings of editors, workflows of CI) is asked for apart; `allow`: like any file",
  },
  limitScope: {
    key: "limit_scope",
    kind: "level",
    levels: ["process", "cell"],
    strictest: "cell",
    weaker: "lets limits hold for each process alone",
    meaning:
      "memory and processors are limited for the whole cell; `process`: where a driver cannot do that (bwrap), each process has a limit of its own memory, and processors have none",
  },
  runtime: {
    key: "runtime",
    kind: "runtime",
    weaker: "uses another container runtime",
    meaning:
      "the Engine runtime, such as `runsc`, or the first that the Engine has of a list, such as `[runsc, default]`; absent: the Engine's default",
  },
  driver: {
    key: "driver",
    kind: "driver",
    choices: DRIVER_CHOICES,
    weaker: "lets another driver make cells",
    meaning:
      "what makes cells: `engine`, `runc`, `prefer-runc` or `bwrap`; absent, or `auto`: what the project or its user chooses; `seatbelt`: on macOS, a command may run without a container, a filter of system calls, and limits of memory, processors, processes and disk",
  },
} as const satisfies Readonly<Record<string, HardeningRow>>;

export type HardeningLine = keyof typeof HARDENING;

type ValueOf<Row> = Row extends { readonly levels: readonly (infer Level)[] }
  ? Level
  : Row extends { readonly kind: "switch" }
    ? boolean
    : Row extends { readonly kind: "capabilities" }
      ? readonly string[]
      : Row extends { readonly kind: "runtime" }
        ? string | readonly string[]
        : Row extends { readonly choices: readonly (infer Choice)[] }
          ? Choice
          : string;

/** The lines that a policy may leave open, since their strictest value is not one value. */
type OpenLine = {
  [Line in HardeningLine]: (typeof HARDENING)[Line] extends { strictest: unknown } ? never : Line;
}[HardeningLine];

/** The lines of a policy that harden a cell. A weaker line than the caller's is a violation. */
export type Hardening = {
  readonly [Line in Exclude<HardeningLine, OpenLine>]: ValueOf<(typeof HARDENING)[Line]>;
} & { readonly [Line in OpenLine]?: ValueOf<(typeof HARDENING)[Line]> };

/** The user and the group of a cell for which no owner of files is there: no distribution uses this id. */
export const CELL_USER_ID = 65532;

export const HARDENING_LINES = Object.keys(HARDENING) as readonly HardeningLine[];

export function hardeningRow(line: HardeningLine): HardeningRow {
  return HARDENING[line];
}

/** The strictest of every line: what a policy file has if it says nothing. A named runtime is stricter still. */
export const BASELINE = Object.fromEntries(
  HARDENING_LINES.flatMap((line) => {
    const { strictest } = hardeningRow(line);
    return strictest === undefined ? [] : [[line, strictest]];
  }),
) as unknown as Hardening;

/** A hardening profile and its ceilings, parsed from `policies/*.yaml`. Pure data. */
export interface Policy {
  readonly name: string;
  readonly description: string;
  /** The policies that it extends, the nearest first; absent: none. Everything else here is already resolved. */
  readonly inherits?: readonly string[];
  readonly hardening: Hardening;
  /** The most a run under this policy may have. */
  readonly network: Network;
  readonly maxLimits: Required<Limits>;
  /** What a root run gets if neither its worker nor its project says. Each at most the ceiling. */
  readonly defaultLimits: Required<Limits>;
  /** Whether one cell may serve many items of a fleet, scrubbed in between; `fresh`: each item has its own. */
  readonly reuse: "fresh" | "scrubbed";
  /** Sizes of the cell's `/tmp` and home, in bytes. */
  readonly tmpBytes: number;
  readonly homeBytes: number;
  /** Open files per process. */
  readonly nofile: number;
}

/**
 * The hardening lines in which `asked` is weaker than `has`; what cannot be compared counts as weaker.
 * Ceilings of limits and network are not compared: they are met in the effective sandbox.
 */
export function policyWeaknesses(asked: Policy, has: Policy): HardeningLine[] {
  return HARDENING_LINES.filter((line) => isWeaker(hardeningRow(line), asked.hardening[line], has.hardening[line]));
}

type Value = Hardening[HardeningLine];

function isWeaker(row: HardeningRow, asked: Value, has: Value): boolean {
  switch (row.kind) {
    case "switch":
      return asked !== row.strictest && has === row.strictest;
    case "capabilities":
      return (asked as readonly string[]).some((one) => !(has as readonly string[]).includes(one));
    case "level":
      return row.levels.indexOf(asked as string) < row.levels.indexOf(has as string);
    case "runtime": {
      const [wanted, allowed] = [asked, has].map((value) => (value === undefined ? [] : [value as string].flat()));
      return has !== undefined && (asked === undefined || wanted?.some((one, at) => one !== allowed?.[at]) === true);
    }
    case "driver": {
      const choice = (asked ?? "auto") as DriverChoice;
      if (choice === "seatbelt" || has === "seatbelt") return has !== "seatbelt";
      return driverOfBoth(choice, (has ?? "auto") as DriverChoice) !== choice;
    }
  }
}

/** `asked` with the sizes that no limit covers at most the caller's, so that a change of policy cannot enlarge them. */
export function withinPolicy(asked: Policy, has: Policy): Policy {
  return {
    ...asked,
    tmpBytes: Math.min(asked.tmpBytes, has.tmpBytes),
    homeBytes: Math.min(asked.homeBytes, has.homeBytes),
    nofile: Math.min(asked.nofile, has.nofile),
  };
}
