import v8 from "node:v8";
import { type Approver, unasked } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { FleetSummary } from "../../fleet/events.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import { runFleet } from "../../operations/run-fleet.ts";
import { openCorralFor } from "../../run/open/corral.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { type ElsewhereOptions, waitingBy } from "../consent/person.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { ImageLines } from "../terminal/image-lines.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { EventLines } from "./event-lines.ts";
import { EventSink } from "./event-sink.ts";
import { openJunitFile, writeJunit } from "./junit-file.ts";
import { commandWords, notified } from "./notify.ts";
import { fleetScreenFor } from "./screen.ts";

/** No person answers for each of thousands of items, and the terminal shows the progress of the fleet. */
const ASKS_NOBODY: Approver = {
  decide: async () =>
    unasked("the approval mode is interactive, and a fleet asks no person; a rule of the project can approve it"),
};

/** Who else follows a running fleet. */
export interface WatchOptions extends ElsewhereOptions {
  readonly json?: boolean;
  /** A file, or `-` for standard output. */
  readonly events?: string;
  readonly notify?: string;
  /** A file for its results in the form of JUnit. */
  readonly junit?: string;
}

/**
 * Runs a fleet to its end, or until the user interrupts it: once, and running items end by themselves; twice, and they are
 * ended. In both cases it can be resumed.
 */
export async function ranFleet(
  project: Project,
  options: WatchOptions,
  terminal: Terminal,
  start: FleetStart,
): Promise<number> {
  const { json, events: target, notify, junit } = options;
  if (json && target === "-") throw new UsageError("--json and --events - cannot both write to standard output");
  const command = notify === undefined ? null : commandWords(notify);
  await using report = junit === undefined ? null : await openJunitFile(junit, terminal);
  using screen = await fleetScreenFor(terminal, options);
  const lost = (why: string): void => screen.tell(`corral: warning: --events ${target}: ${why}`);
  await using events = target === undefined ? null : new EventLines(EventSink.open(target, terminal, lost));
  const [drain, stop] = [new AbortController(), new AbortController()];
  const running = new Set<number>();
  const images = new ImageLines();
  let asked = 0;
  const notifying = new AbortController();
  let hasEnded = false;
  const off = terminal.onStop(() => {
    if (hasEnded) return notifying.abort();
    asked += 1;
    if (asked === 1) {
      drain.abort();
      screen.tell(`corral: ${waitingText(running.size)}`);
    } else if (asked === 2) {
      stop.abort(new Error("it was stopped"));
      screen.tell("corral: Stopping and cleaning up. Press Ctrl-C again to exit now");
    } else terminal.exit(EXIT.cancelled);
  });
  try {
    await using corral = await openCorralFor(project, {
      stateDir: stateDirFrom(terminal.env),
      engineEnv: terminal.env,
      emit(event) {
        for (const line of images.see(event)) screen.tell(line);
        if (event.type === "trouble") screen.tell(`corral: ${event.detail}`);
      },
      approver: ASKS_NOBODY,
      ...waitingBy(options, (line) => screen.tell(line)),
    });
    const results = runFleet(corral, start, {
      onEvent(event) {
        if (event.type === "started") running.add(event.index);
        else if (event.type === "settled") running.delete(event.result.index);
        screen.see(event);
        events?.see(event);
      },
      // A fresh cell costs the Engine so much that this is not felt; a scrubbed one is quick enough to feel it.
      onOpened: ({ reuse }) => void (reuse === "fresh" && keepHeapSmall()),
      drain: drain.signal,
      stop: stop.signal,
    });
    const summary = await ended(results);
    hasEnded = true;
    screen.end(summary);
    const place = { stateDir: corral.stateDir, projectDir: project.dir, engineEnv: terminal.env };
    if (report !== null) await writeJunit(report, summary.fleet, place);
    if (terminal.env.GITHUB_STEP_SUMMARY) {
      await (await import("../github/step-summary.ts")).addFleetToStepSummary(summary, place, terminal);
    }
    events?.end(summary);
    const warning = command === null ? null : await notified(command, summary, terminal, notifying.signal);
    if (warning !== null) say(terminal, warning);
    return statusOf(summary, asked > 0);
  } finally {
    off();
  }
}

/** A failure is more than a change that waits: a script that can only retry looks for failures first. */
function statusOf({ state, items, byStatus }: FleetSummary, isInterrupted: boolean): number {
  if (state !== "done" && state !== "pending") return isInterrupted ? EXIT.cancelled : EXIT.someFailed;
  const { succeeded = 0, cached = 0, applied = 0, pending = 0 } = byStatus;
  if (succeeded + cached + applied + pending < items) return EXIT.someFailed;
  return pending > 0 ? EXIT.pending : 0;
}

function waitingText(running: number): string {
  if (running === 0) return "Stopping. Press Ctrl-C again to stop now";
  return `Waiting for ${running} running ${running === 1 ? "item" : "items"}. Press Ctrl-C again to stop now`;
}

/** The screen sees each result as an event; here they are only taken, so that the fleet continues. */
async function ended(results: AsyncGenerator<unknown, FleetSummary>): Promise<FleetSummary> {
  for (;;) {
    const step = await results.next();
    if (step.done) return step.value;
  }
}

/**
 * Has what is young in this process's heap collected before it grows, for a process that mostly waits for the Engine: where
 * the machine has room, tens of megabytes of it would else lie there. A Node that does not know the setting leaves it as it is.
 */
export function keepHeapSmall(): void {
  v8.setFlagsFromString("--semi-space-growth-factor=1");
}
