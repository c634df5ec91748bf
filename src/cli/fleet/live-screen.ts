import { createLogUpdate } from "log-update";
import type { FleetEvent, FleetSummary } from "../../fleet/events.ts";
import { countText } from "../../fleet/report/measures/quantity.ts";
import type { FleetScreen } from "../terminal/screen.ts";
import { colorsFor, say, type Terminal } from "../terminal/terminal.ts";
import { drawFleet } from "./drawing.ts";
import { Quota } from "./quota.ts";
import { awayText, fleetTroubleText, summaryText } from "./text.ts";
import { FleetWitness } from "./witness.ts";

/** Eight times a second, however much happens in between. */
const FRAME_MS = 125;
const MAX_TROUBLES = 50;

/** On a terminal: the status of the fleet, redrawn below the printed messages. */
export class LiveFleetScreen implements FleetScreen {
  readonly #terminal: Terminal;
  readonly #witness = new FleetWitness();
  readonly #update: ReturnType<typeof createLogUpdate>;
  readonly #timer: NodeJS.Timeout;
  readonly #troubles = new Quota(MAX_TROUBLES);
  #left = false;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#update = createLogUpdate(terminal.stderr);
    this.#timer = setInterval(() => this.#draw(), FRAME_MS);
    this.#timer.unref();
  }

  see(event: FleetEvent): void {
    this.#witness.see(event);
    if (event.type === "trouble" && this.#troubles.take()) this.tell(fleetTroubleText(event.detail));
    else if (event.type === "waiting" || event.type === "continued") this.tell(awayText(event));
  }

  tell(line: string): void {
    if (!this.#left) this.#update.clear();
    say(this.#terminal, line);
  }

  end(summary: FleetSummary): void {
    this.#leave();
    const { beyond } = this.#troubles;
    if (beyond > 0) this.tell(`corral: ${countText(beyond)} more errors`);
    this.tell(summaryText(summary));
  }

  [Symbol.dispose](): void {
    this.#leave();
  }

  /** Removes the drawing and gives the terminal back. */
  #leave(): void {
    if (this.#left) return;
    clearInterval(this.#timer);
    this.#left = true;
    this.#update.clear();
    // Shows the cursor again, which was hidden at the first frame.
    this.#update.done();
  }

  #draw(): void {
    const view = this.#witness.view();
    if (view.fleet === null) return;
    const { stderr, env } = this.#terminal;
    const columns = stderr.columns || 80;
    const rows = stderr.rows || 24;
    this.#update(
      drawFleet(view, { columns, rows, colors: colorsFor(stderr, env), memoryBytes: process.memoryUsage.rss() }),
    );
  }
}
