import { constants } from "node:os";
import type { RunResult } from "../../run/model/result.ts";

/** The exit statuses of Corral itself; any other is the worker's own. */
export const EXIT = {
  /** Of a fleet: not every item succeeded. */
  someFailed: 1,
  wrongUsage: 2,
  /** Of a fleet: no item failed, but changes of some wait for consent. A script must not take them for done. */
  pending: 3,
  timedOut: 124,
  engineTrouble: 125,
  refused: 126,
  cancelled: 130,
  outOfMemory: 137,
  /** Nobody reads the output any more: as a shell tells SIGPIPE. */
  unread: 141,
  /** A limit on output or disk was passed: as a shell tells SIGXFSZ, which is what a too large file is ended by. */
  tooMuch: 128 + constants.signals.SIGXFSZ,
} as const;

/** The exit status of `corral run`: the worker's own where it ended by itself, else one that says why it did not. */
export function exitStatusOf({ status, exitCode, signal }: Pick<RunResult, "status" | "exitCode" | "signal">): number {
  // A worker that exits with 0 fails if its output is not the JSON that it declares.
  if (status === "failed") return exitCode || 1;
  if (status === "signaled") return 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
  return STATUSES[status];
}

const STATUSES: Readonly<Record<Exclude<RunResult["status"], "failed" | "signaled">, number>> = {
  succeeded: 0,
  timed_out: EXIT.timedOut,
  oom_killed: EXIT.outOfMemory,
  output_limit: EXIT.tooMuch,
  disk_limit: EXIT.tooMuch,
  cancelled: EXIT.cancelled,
  refused: EXIT.refused,
  denied: EXIT.refused,
  lost: EXIT.engineTrouble,
};
