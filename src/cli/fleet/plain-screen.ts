import type { ItemResult } from "../../fleet/model/item.ts";
import { isPendingStatus, isSuccess } from "../../fleet/report/measures/gathered.ts";
import type { FleetEvent, FleetSummary } from "../../fleet/running/events.ts";
import { countText } from "../../text/amounts.ts";
import { type FleetScreen, say, type Terminal } from "../terminal/terminal.ts";
import {
  awayText,
  drainingText,
  failureText,
  fleetTroubleText,
  loadedText,
  progressText,
  Quota,
  readingText,
  summaryText,
} from "./text.ts";
import { FleetWitness } from "./witness.ts";

const MAX_FAILURES = 20;
const MAX_TROUBLES = 50;
const EVERY_MS = 10_000;
const EVERY_PERCENT = 10;

/** Where standard error is no terminal: how far it is every 10 % or 10 seconds, the first failures, and how it ended. */
export class PlainFleetScreen implements FleetScreen {
  readonly #terminal: Terminal;
  readonly #witness = new FleetWitness();
  readonly #timer: NodeJS.Timeout;
  readonly #failures = new Quota(MAX_FAILURES);
  readonly #troubles = new Quota(MAX_TROUBLES);
  #items = 0;
  #done = 0;
  /** In tenths of the whole. */
  #toldTenth = 0;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#timer = setInterval(() => this.#tick(), EVERY_MS);
    this.#timer.unref();
  }

  see(event: FleetEvent): void {
    this.#witness.see(event);
    if (event.type === "loaded") {
      this.#items = event.items;
      this.#done = event.done;
      this.#toldTenth = this.#tenth;
      this.tell(loadedText(event.fleet, event.items, event.done));
    } else if (event.type === "settled" && event.retryInMs === null) this.#settle(event.result);
    else if (event.type === "trouble" && this.#troubles.take()) this.tell(fleetTroubleText(event.detail));
    else if (event.type === "reading") this.tell(readingText(event.key));
    else if (event.type === "draining") this.tell(drainingText(event.why));
    else if (event.type === "waiting" || event.type === "continued") this.tell(awayText(event));
  }

  tell(line: string): void {
    say(this.#terminal, line);
  }

  end(summary: FleetSummary): void {
    clearInterval(this.#timer);
    const { beyond } = this.#troubles;
    if (beyond > 0) this.tell(`corral: ${countText(beyond)} more errors`);
    this.tell(summaryText(summary));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  get #tenth(): number {
    return this.#items === 0 ? 0 : Math.floor((this.#done * 100) / this.#items / EVERY_PERCENT);
  }

  #settle(result: ItemResult): void {
    this.#done += 1;
    if (!isSuccess(result.status) && !isPendingStatus(result.status)) {
      if (this.#failures.take()) this.tell(failureText(result));
      else if (this.#failures.isJustExceeded) this.tell("corral: further failures are only counted");
    }
    // The summary reports the whole.
    if (this.#tenth > this.#toldTenth && this.#done < this.#items) this.#progress();
  }

  #tick(): void {
    if (this.#items > 0) this.#progress();
  }

  #progress(): void {
    this.#toldTenth = this.#tenth;
    // A line that was just printed for its 10 % is not printed again for its 10 seconds.
    this.#timer.refresh();
    this.tell(progressText(this.#witness.view(0)));
  }
}
