import { constants } from "node:os";
import type { RunResult } from "../../run/model/result.ts";

/** The exit statuses of Corral itself; any other is the worker's own. */
export const EXIT = {
  /** Of a fleet: not every item succeeded. */
  someFailed: 1,
  wrongUsage: 2,
  timedOut: 124,
  engineTrouble: 125,
  refused: 126,
  cancelled: 130,
  outOfMemory: 137,
  /** A limit on output or disk was passed: as a shell tells SIGXFSZ, which is what a too large file is ended by. */
  tooMuch: 128 + constants.signals.SIGXFSZ,
} as const;

/** The exit status of `corral run`: the worker's own where it ended by itself, else one that says why it did not. */
export function exitStatusOf({ status, exitCode, signal }: Pick<RunResult, "status" | "exitCode" | "signal">): number {
  switch (status) {
    case "succeeded":
      return 0;
    case "failed":
      // A worker that exits with 0 fails where its output is not the JSON that it declares.
      return exitCode || 1;
    case "signaled":
      return 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
    case "timed_out":
      return EXIT.timedOut;
    case "oom_killed":
      return EXIT.outOfMemory;
    case "output_limit":
    case "disk_limit":
      return EXIT.tooMuch;
    case "cancelled":
      return EXIT.cancelled;
    case "refused":
    case "denied":
      return EXIT.refused;
    case "lost":
      return EXIT.engineTrouble;
  }
}
