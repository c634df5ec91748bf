/** A row of {@link LIMITS}. */
export interface LimitRow {
  /** The key in worker files, in `sandbox` and in policies, and the limit's name in refusals and in `corral explain`. */
  readonly key: string;
  /** How it is written and shown: `30s`, `64m`, `0.5`, `4`. */
  readonly unit: "duration" | "bytes" | "number" | "count";
  /** Of a number or a count: the least and the most that a file may say. */
  readonly min?: number;
  readonly max?: number;
  /** What a policy allows that does not mention this limit; without it every policy must say the limit. */
  readonly absent?: number;
  /** What is limited, for the documentation. */
  readonly meaning: string;
}

/**
 * Every limit of a run, one row each. The file format, {@link Limits}, the plan, the refusals, `corral explain` and the
 * table in docs/formats/limits.md are derived from it: a new limit is a row here, its enforcement in a driver, and a test.
 */
export const LIMITS = {
  timeoutMs: { key: "timeout", unit: "duration", meaning: "how long the run may take, its calls included" },
  memoryBytes: {
    key: "memory",
    unit: "bytes",
    meaning: "memory and swap of all processes together; `/tmp` and home count too",
  },
  cpus: { key: "cpus", unit: "number", min: 0.01, max: 1024, meaning: "processors; a fraction is a share of one" },
  pids: { key: "pids", unit: "count", min: 1, max: 4_194_304, meaning: "processes and threads at the same time" },
  outputBytes: { key: "output", unit: "bytes", meaning: "standard output and standard error together" },
  diskBytes: {
    key: "disk",
    unit: "bytes",
    meaning: "all that the run writes to its mounts; no single file can become larger",
  },
} as const satisfies Readonly<Record<string, LimitRow>>;

export type LimitName = keyof typeof LIMITS;

/** What a run may use at most. Units are in the names; absent means that this list does not limit it. */
export type Limits = { readonly [Name in LimitName]?: number };

export const LIMIT_NAMES = Object.keys(LIMITS) as readonly LimitName[];

/** One value for each limit. */
export function everyLimit(amountOf: (name: LimitName) => number): Required<Limits> {
  return Object.fromEntries(LIMIT_NAMES.map((name) => [name, amountOf(name)])) as Required<Limits>;
}

/** One limit asked for beyond the one there is. */
export interface LimitExcess {
  readonly limit: LimitName;
  readonly asked: number;
  readonly has: number;
}

/** The smaller of each; what only one of them limits is limited. */
export function meetLimits(a: Limits, b: Limits): Limits {
  const met: { -readonly [Name in LimitName]?: number } = {};
  for (const name of LIMIT_NAMES) {
    const least = Math.min(a[name] ?? Number.POSITIVE_INFINITY, b[name] ?? Number.POSITIVE_INFINITY);
    if (Number.isFinite(least)) met[name] = least;
  }
  return met;
}

/** Each limit that `asked` names and that is larger than what there is. What it does not name, it does not ask for. */
export function limitExcesses(asked: Limits, has: Limits): LimitExcess[] {
  return LIMIT_NAMES.flatMap((limit) => {
    const [wanted, there] = [asked[limit], has[limit]];
    return wanted !== undefined && there !== undefined && wanted > there ? [{ limit, asked: wanted, has: there }] : [];
  });
}
