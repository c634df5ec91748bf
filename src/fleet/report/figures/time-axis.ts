import { durationText } from "../measures/quantity.ts";
import { timeTicks } from "../measures/scale.ts";
import { INNER, LEFT, type Tick } from "./frame.ts";

/** A stretch of time along the base of a figure. */
export class TimeAxis {
  readonly #fromMs: number;
  readonly #spanMs: number;

  constructor({ fromMs, toMs }: { readonly fromMs: number; readonly toMs: number }) {
    this.#fromMs = fromMs;
    this.#spanMs = Math.max(1, toMs - fromMs);
  }

  x(ms: number): number {
    return LEFT + INNER * Math.min(1, Math.max(0, (ms - this.#fromMs) / this.#spanMs));
  }

  /** Time since the beginning. */
  ticks(): Tick[] {
    return timeTicks(0, this.#spanMs).map((ms) => ({ share: ms / this.#spanMs, label: durationText(ms) }));
  }
}
