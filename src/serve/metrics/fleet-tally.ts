import type { FleetEvent } from "../../fleet/events.ts";

/** How many items of one running fleet wait, and how many run. */
export class FleetTally {
  readonly project: string;
  readonly #running = new Set<number>();
  #left = 0;

  constructor(project: string) {
    this.project = project;
  }

  see(event: FleetEvent): void {
    if (event.type === "loaded") this.#left = event.items - event.done;
    else if (event.type === "started") this.#running.add(event.index);
    else if (event.type === "settled") {
      this.#running.delete(event.result.index);
      if (event.retryInMs === null) this.#left -= 1;
    }
  }

  get running(): number {
    return this.#running.size;
  }

  get waiting(): number {
    return Math.max(0, this.#left - this.#running.size);
  }
}
