import { isSuccess } from "../../fleet/report/measures/gathered.ts";
import type { WorkEvent } from "../../fleet/work/hosted-fleets.ts";
import { counted, countText, durationText, rateText } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { RecentRate } from "./rate.ts";

const EVERY_MS = 10_000;
/** Troubles, and items that were given back or came late, that are reported one by one. */
const MAX_TOLD = 200;

/** What `corral work` reports to the user: lines on standard error, and every 10 seconds how far it is if something happened. */
export class WorkScreen implements Disposable {
  readonly #terminal: Terminal;
  readonly #isJson: boolean;
  readonly #timer: NodeJS.Timeout;
  readonly #rate = new RecentRate(performance.now());
  readonly #begunAt = performance.now();
  /** Attempts that have begun; an item that is refused here never does. */
  readonly #running = new Set<string>();
  #delivered = 0;
  #failed = 0;
  #told = 0;
  #toldDelivered = 0;

  /** With `isJson` only what concerns the user is printed: the rest is on standard output. */
  constructor(terminal: Terminal, isJson: boolean) {
    this.#terminal = terminal;
    this.#isJson = isJson;
    this.#timer = setInterval(() => this.#progress(), EVERY_MS);
    this.#timer.unref();
  }

  get waitingText(): string {
    const { size } = this.#running;
    if (size === 0) return "Stopping. Press Ctrl-C again to stop now";
    return `Waiting for ${counted(size, "running item")}. Press Ctrl-C again to stop now`;
  }

  see(event: WorkEvent): void {
    if (event.type === "started") this.#running.add(nameOf(event));
    if (event.type === "delivered" || event.type === "late" || event.type === "given_back")
      this.#running.delete(nameOf(event));
    if (event.type === "delivered") {
      this.#delivered += 1;
      if (!isSuccess(event.status)) this.#failed += 1;
      this.#rate.add(performance.now());
    }
    const line = lineOf(event);
    if (line === null || this.#isJson) return;
    if (event.type === "trouble" || event.type === "late" || event.type === "given_back") {
      this.#told += 1;
      if (this.#told > MAX_TOLD) return;
    }
    this.tell(`corral: ${line}`);
  }

  tell(line: string): void {
    say(this.#terminal, line);
  }

  end(): void {
    const { untold } = this;
    if (untold > 0) this.tell(`corral: ${countText(untold)} more lines were left out`);
    const took = durationText(Math.round(performance.now() - this.#begunAt));
    this.tell(`corral: delivered ${counted(this.#delivered, "item")} in ${took}${this.#failedText}`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  private get untold(): number {
    return Math.max(0, this.#told - MAX_TOLD);
  }

  get #failedText(): string {
    return this.#failed === 0 ? "" : `, ${countText(this.#failed)} of them without success`;
  }

  #progress(): void {
    if (this.#isJson || (this.#delivered === this.#toldDelivered && this.#running.size === 0)) return;
    this.#toldDelivered = this.#delivered;
    const rate = rateText(this.#rate.perSecond(performance.now()));
    this.tell(
      `corral: ${countText(this.#running.size)} running, ${countText(this.#delivered)} delivered${this.#failedText}, ${rate}`,
    );
  }
}

/** For people; null: nothing to tell. */
function lineOf(event: WorkEvent): string | null {
  switch (event.type) {
    case "waiting": {
      const what = event.for === "engine" ? "container engine" : "queue";
      return `waits for the ${what}, and tries again until it is there. ${printable(event.why)}`;
    }
    case "joined": {
      const labels = event.labels.length === 0 ? "" : `, labels ${event.labels.join(", ")}`;
      return `machine ${printableLine(event.name, 100)} runs up to ${counted(event.slots, "item")} at once${labels}`;
    }
    case "taking":
      return `takes items of fleet ${printableLine(event.fleet, 40)} (${printableLine(event.worker, 80)})`;
    case "not_taking":
      return `takes no items of fleet ${printableLine(event.fleet, 40)}: ${printableLine(event.why, 1000)}`;
    case "closed":
      return `fleet ${printableLine(event.fleet, 40)} has no more items here`;
    case "late":
      return `${nameOf(event)} came late and does not count: ${printableLine(event.reason, 500)}`;
    case "given_back":
      return `${nameOf(event)} was given back: ${printableLine(event.why, 500)}`;
    case "trouble":
      return `error: ${printable(event.detail)}`;
    case "lost":
      return "the queue was not reached for too long: what ran here is ended, and other machines run it again";
    case "started":
    case "delivered":
    case "draining":
      return null;
  }
}

function nameOf({ fleet, key, attempt }: { fleet: string; key: string; attempt: number }): string {
  return `item ${printableLine(key, 200)} of fleet ${printableLine(fleet, 40)} (attempt ${attempt})`;
}

/** An event of `--json`. */
export function workLine(event: WorkEvent): object {
  return { ...event, at: new Date().toISOString() };
}
