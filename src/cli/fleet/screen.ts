import type { Terminal } from "../terminal/terminal.ts";
import { JsonFleetScreen } from "./json-screen.ts";
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
