import { EXIT } from "./exit-status.ts";
import type { Terminal } from "./terminal.ts";

export interface Stop extends Disposable {
  readonly signal: AbortSignal;
  cancel(): void;
}

/** The first SIGINT or SIGTERM cancels, and what was begun is cleaned up; the second leaves at once. */
export function stoppable(terminal: Terminal, tell: (line: string) => void): Stop {
  const controller = new AbortController();
  const cancel = (): void => controller.abort(new Error("it was cancelled"));
  const off = terminal.onStop(() => {
    if (controller.signal.aborted) terminal.exit(EXIT.cancelled);
    cancel();
    tell("corral: stopping and cleaning up; once more to leave at once");
  });
  return { signal: controller.signal, cancel, [Symbol.dispose]: off };
}
