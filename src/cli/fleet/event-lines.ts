import type { FleetEvent, FleetSummary } from "../../fleet/events.ts";
import { jsonLine } from "../../fleet/report/results-export.ts";
import type { EventSink } from "./event-sink.ts";
import { FleetWitness } from "./witness.ts";

const PROGRESS_MS = 1000;

/** `--events`: what happens in a fleet, as JSON lines for other programs (docs/formats/results.md has their shapes). */
export class EventLines implements AsyncDisposable {
  readonly #sink: EventSink;
  readonly #witness = new FleetWitness();
  readonly #timer: NodeJS.Timeout;
  #fleet: string | null = null;

  constructor(sink: EventSink) {
    this.#sink = sink;
    this.#timer = setInterval(() => this.#progress(), PROGRESS_MS);
    this.#timer.unref();
  }

  see(event: FleetEvent): void {
    this.#witness.see(event);
    if (event.type === "loaded") {
      this.#fleet = event.fleet;
      this.#tell("fleet_started", { items: event.items, done: event.done });
    } else if (event.type === "started") {
      const { index, key, attempt, machine } = event;
      this.#tell("item_started", { index, key, attempt, ...(machine === undefined ? {} : { machine }) });
    } else if (event.type === "settled") {
      const { output: _, fields: __, ...result } = event.result;
      this.#tell("item_ended", { ...result, retryInMs: event.retryInMs });
    } else if (event.type === "draining") this.#tell("draining", { why: event.why });
    else if (event.type === "waiting") this.#tell("waiting", { for: event.for, why: event.why });
    else if (event.type === "continued") this.#tell("continued", {});
    else if (event.type === "machines") this.#tell("machines", { machines: event.machines });
    else if (event.type === "trouble") this.#tell("trouble", { message: event.detail.slice(0, MAX_TROUBLE_CHARS) });
  }

  end(summary: FleetSummary): void {
    clearInterval(this.#timer);
    this.#progress();
    this.#tell("fleet_ended", { ...summary });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#sink.end();
  }

  #progress(): void {
    if (this.#fleet === null) return;
    const { items, done, succeeded, cached, failed, pending, running, elsewhere, waiting, recentRate, leftMs } =
      this.#witness.view(0);
    const counts = { items, done, succeeded, cached, failed, pending, running, elsewhere, waiting };
    const pace = {
      itemsPerSecond: Math.round(recentRate * 100) / 100,
      leftMs: leftMs === null ? null : Math.round(leftMs),
    };
    this.#tell("progress", { ...counts, ...pace });
  }

  #tell(type: string, more: object): void {
    this.#sink.write(jsonLine({ type, at: new Date().toISOString(), fleet: this.#fleet, ...more }));
  }
}

const MAX_TROUBLE_CHARS = 2000;
