import type { RunEvent } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";

/** What a person sees of a run: while it goes on, and at its end. */
export interface RunScreen extends Disposable {
  see(event: RunEvent): void;
  /** A line for the person that is no event of a run. */
  tell(line: string): void;
  /** Somebody else, a prompt, uses the terminal between these two. */
  pause(): void;
  resume(): void;
  end(result: RunResult): void;
}
