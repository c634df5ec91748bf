import type { Cell, CellExit } from "../../isolation/port/cell.ts";
import { MAX_TIMER_MS } from "../../platform/max-timer.ts";
import { onAbort } from "../../platform/on-abort.ts";
import type { StopReason } from "../model/result.ts";

/** How long a worker that was asked to end may take before it is ended. */
const GRACE_MS = 2000;
/** How long the engine may take to report the end of a cell that was killed. */
const KILL_TIMEOUT_MS = 30_000;

export interface Supervision {
  readonly exit: CellExit;
  /** Why Corral ended the cell; null if the worker ended by itself. */
  readonly stopped: StopReason | null;
}

export interface SupervisionBounds {
  readonly timeoutMs: number;
  /** Aborted when the run is cancelled, by a person or with its caller. */
  readonly signal: AbortSignal;
  /** Aborted when the worker has printed more than it may. */
  readonly flooded: AbortSignal;
  /** Aborted when it has written more than it may. */
  readonly overDisk: AbortSignal;
}

/** Waits for a released cell to end, and ends it if it exceeds a bound. The first reason is reported. */
export async function supervise(cell: Cell, bounds: SupervisionBounds): Promise<Supervision> {
  let stopped: StopReason | null = null;
  const { promise: unanswered, resolve: giveUp } = Promise.withResolvers<CellExit>();
  const timers: NodeJS.Timeout[] = [];
  const after = (ms: number, action: () => void): void => {
    timers.push(setTimeout(action, Math.max(0, Math.min(ms, MAX_TIMER_MS))));
  };
  // If the engine cannot be asked to kill, the exit reports that; there is nothing to add here.
  const kill = (signal: "SIGTERM" | "SIGKILL"): void => void cell.kill(signal).catch(() => {});
  const end = (): void => {
    kill("SIGKILL");
    after(KILL_TIMEOUT_MS, () =>
      giveUp({ kind: "lost", reason: "the engine did not report the end of a killed cell" }),
    );
  };
  const stop = (reason: StopReason): void => {
    if (stopped !== null) return;
    stopped = reason;
    if (reason === "output_limit" || reason === "disk_limit") end();
    else {
      kill("SIGTERM");
      after(GRACE_MS, end);
    }
  };

  after(bounds.timeoutMs, () => stop("timed_out"));
  using _cancel = onAbort(bounds.signal, () => stop("cancelled"));
  using _flood = onAbort(bounds.flooded, () => stop("output_limit"));
  using _disk = onAbort(bounds.overDisk, () => stop("disk_limit"));
  try {
    const exit = await Promise.race([cell.exit, unanswered]);
    return { exit, stopped };
  } finally {
    for (const timer of timers) clearTimeout(timer);
  }
}
