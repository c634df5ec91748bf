import { MAX_TIMER_MS } from "../../platform/max-timer.ts";
import { formatDuration } from "../../sandbox/units.ts";
import type { RunError } from "../model/result.ts";

export interface StoppedAgent {
  readonly status: "timed_out" | "cancelled";
  readonly error: RunError;
}

/** What ends an agent that does not end by itself. The first reason is the one that is reported. */
export class AgentEnd implements Disposable {
  readonly signal: AbortSignal;
  readonly #worker: string;
  readonly #timeoutMs: number;
  readonly #time = new AbortController();
  readonly #timer: NodeJS.Timeout;

  constructor(worker: string, timeoutMs: number, cancelled: AbortSignal) {
    this.#worker = worker;
    this.#timeoutMs = timeoutMs;
    this.#timer = setTimeout(() => this.#time.abort(OUT_OF_TIME), Math.min(Math.max(0, timeoutMs), MAX_TIMER_MS));
    this.signal = AbortSignal.any([cancelled, this.#time.signal]);
  }

  /** Null if nothing ended it. */
  get stopped(): StoppedAgent | null {
    if (!this.signal.aborted) return null;
    const worker = this.#worker;
    if (this.signal.reason === OUT_OF_TIME) {
      const limit = formatDuration(Math.round(this.#timeoutMs));
      const message = `Agent ${worker} did not end within its time limit (${limit}).`;
      return { status: "timed_out", error: { code: "TIMED_OUT", message } };
    }
    return { status: "cancelled", error: { code: "CANCELLED", message: `The run of agent ${worker} was cancelled.` } };
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}

const OUT_OF_TIME = new Error("the agent's time is over");
