import type { FleetEvent, FleetSummary } from "../../fleet/events.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";

/** What a person sees of a run or a fleet: while it runs, and at its end. */
interface Screen<Event, End> extends Disposable {
  see(event: Event): void;
  /** A line for the person that is not an event. */
  tell(line: string): void;
  end(result: End): void;
}

/** A prompt uses the terminal between these two. Absent if nothing is drawn there. */
export interface Pausable {
  pause?(): void;
  resume?(): void;
}

export type RunScreen = Screen<RunEvent, RunResult> & Pausable;
export type FleetScreen = Screen<FleetEvent, FleetSummary>;
