import type { FleetEvent, FleetSummary } from "../../fleet/events.ts";

/** What a person sees of a fleet: while it goes on, and at its end. */
export interface FleetScreen extends Disposable {
  see(event: FleetEvent): void;
  /** A line for the person that is no event of the fleet. */
  tell(line: string): void;
  /** Somebody else, a prompt, uses the terminal between these two. */
  pause(): void;
  resume(): void;
  end(summary: FleetSummary): void;
}
