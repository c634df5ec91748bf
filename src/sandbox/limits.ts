/** What a run may use at most. Units are in the names; absent means that this list does not limit it. */
export interface Limits {
  readonly timeoutMs?: number;
  readonly memoryBytes?: number;
  readonly cpus?: number;
  readonly pids?: number;
  /** Standard output and standard error together. */
  readonly outputBytes?: number;
  /** What a run may write in all, and so the largest file that a process may write. */
  readonly diskBytes?: number;
}

export const LIMIT_NAMES = ["timeoutMs", "memoryBytes", "cpus", "pids", "outputBytes", "diskBytes"] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

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
