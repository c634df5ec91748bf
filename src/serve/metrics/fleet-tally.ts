import type { FleetEvent } from "../../fleet/events.ts";

/** How many items of one running fleet wait, how many run, and how many of them on other machines. */
export class FleetTally {
  readonly project: string;
  readonly #running = new Set<number>();
  #left = 0;
  #elsewhere = 0;

  constructor(project: string) {
    this.project = project;
  }

  see(event: FleetEvent): void {
    if (event.type === "loaded") this.#left = event.items - event.done;
    // What a machine has delivered is counted there until it is settled.
    else if (event.type === "started" && event.machine === undefined) this.#running.add(event.index);
    else if (event.type === "elsewhere") this.#elsewhere = event.running;
    else if (event.type === "settled") {
      this.#running.delete(event.result.index);
      if (event.result.machine !== undefined) this.#elsewhere = Math.max(0, this.#elsewhere - 1);
      if (event.retryInMs === null) this.#left -= 1;
    }
  }

  /** Those elsewhere included. */
  get running(): number {
    return this.#running.size + this.#elsewhere;
  }

  get elsewhere(): number {
    return this.#elsewhere;
  }

  get waiting(): number {
    return Math.max(0, this.#left - this.running);
  }
}
