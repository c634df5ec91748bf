/** What a run may use at most. Units are in the names; absent means that this list does not limit it. */
export interface Limits {
  readonly timeoutMs?: number;
  readonly memoryBytes?: number;
  readonly cpus?: number;
  readonly pids?: number;
  /** Standard output and standard error together. */
  readonly outputBytes?: number;
  /** The largest file a process may write, and later what a run may write in all. */
  readonly diskBytes?: number;
}

export const LIMIT_NAMES = ["timeoutMs", "memoryBytes", "cpus", "pids", "outputBytes", "diskBytes"] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];
