import { jsonLine } from "../../fleet/report/results-export.ts";
import type { FleetScreen } from "../terminal/screen.ts";
import type { Terminal } from "../terminal/terminal.ts";
import { PlainFleetScreen } from "./plain-screen.ts";

/** On a terminal a live drawing, elsewhere plain lines: both on standard error. With `json`, results on standard output. */
export async function fleetScreenFor(
  terminal: Terminal,
  { json, events }: { readonly json?: boolean; readonly events?: string },
): Promise<FleetScreen> {
  if (!json && events !== "-") return await screenForPeople(terminal);
  // Lines that scroll through the same terminal would tear a drawing apart.
  const people = terminal.stdout.isTTY ? new PlainFleetScreen(terminal) : await screenForPeople(terminal);
  return json ? jsonScreen(terminal, people) : people;
}

async function screenForPeople(terminal: Terminal): Promise<FleetScreen> {
  if (!terminal.stderr.isTTY) return new PlainFleetScreen(terminal);
  const { LiveFleetScreen } = await import("./live-screen.ts");
  return new LiveFleetScreen(terminal);
}

/** One line of JSON on standard output for each result that counts, and nothing else there; people have another screen. */
function jsonScreen({ stdout }: Terminal, people: FleetScreen): FleetScreen {
  return {
    see(event) {
      if (event.type === "settled" && event.retryInMs === null) stdout.write(jsonLine(event.result));
      people.see(event);
    },
    tell: (line) => people.tell(line),
    end: (summary) => people.end(summary),
    [Symbol.dispose]: () => people[Symbol.dispose](),
  };
}
