import type { FleetEvent, FleetSummary } from "../../fleet/events.ts";
import { resultLine } from "../../fleet/report/results-export.ts";
import type { Terminal } from "../terminal/terminal.ts";
import { PlainFleetScreen } from "./plain-screen.ts";
import type { FleetScreen } from "./screen-shape.ts";

export interface FleetScreenOptions {
  readonly json?: boolean;
}

/** On a terminal a live drawing, elsewhere plain lines: both on standard error. With `json`, results on standard output. */
export async function fleetScreenFor(terminal: Terminal, options: FleetScreenOptions): Promise<FleetScreen> {
  if (!options.json) return await screenForPeople(terminal);
  // Results that scroll through the same terminal would tear a drawing apart.
  const people = terminal.stdout.isTTY ? new PlainFleetScreen(terminal) : await screenForPeople(terminal);
  return new JsonFleetScreen(terminal, people);
}

async function screenForPeople(terminal: Terminal): Promise<FleetScreen> {
  if (!terminal.stderr.isTTY) return new PlainFleetScreen(terminal);
  const { LiveFleetScreen } = await import("./live-screen.ts");
  return new LiveFleetScreen(terminal);
}

/** One line of JSON on standard output for each result that counts, and nothing else there; people have another screen. */
export class JsonFleetScreen implements FleetScreen {
  readonly #terminal: Terminal;
  readonly #people: FleetScreen;

  constructor(terminal: Terminal, people: FleetScreen) {
    this.#terminal = terminal;
    this.#people = people;
  }

  see(event: FleetEvent): void {
    if (event.type === "settled" && event.retryInMs === null) this.#terminal.stdout.write(resultLine(event.result));
    this.#people.see(event);
  }

  tell(line: string): void {
    this.#people.tell(line);
  }

  pause(): void {
    this.#people.pause();
  }

  resume(): void {
    this.#people.resume();
  }

  end(summary: FleetSummary): void {
    this.#people.end(summary);
  }

  [Symbol.dispose](): void {
    this.#people[Symbol.dispose]();
  }
}
