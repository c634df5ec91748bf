import { EXIT } from "./exit-status.ts";
import type { Terminal } from "./terminal.ts";

export interface Stop extends Disposable {
  readonly signal: AbortSignal;
  cancel(): void;
}

/** The first SIGINT, SIGTERM or SIGHUP cancels and cleans up; the second exits at once. */
export function stoppable(terminal: Terminal, tell: (line: string) => void): Stop {
  const controller = new AbortController();
  const cancel = (): void => controller.abort(new Error("it was cancelled"));
  const off = terminal.onStop(() => {
    if (controller.signal.aborted) terminal.exit(EXIT.cancelled);
    cancel();
    tell("corral: Stopping and cleaning up. Press Ctrl-C again to exit now");
  });
  return { signal: controller.signal, cancel, [Symbol.dispose]: off };
}
