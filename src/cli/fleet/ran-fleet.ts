import { type Approver, denied } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { FleetEvent } from "../../fleet/events.ts";
import type { FleetEnvironment, OpenedFleet } from "../../fleet/fleet.ts";
import { describeCollisions } from "../../fleet/items/collisions.ts";
import { openJournal } from "../../fleet/open-journal.ts";
import { describeAll } from "../../run/model/result.ts";
import { openProject } from "../../run/open/corral.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { fleetScreenFor } from "./screen.ts";
import { keepHeapSmall } from "./small-heap.ts";

const ASKS_NOBODY: Approver = {
  decide: async () => denied("the approval mode is interactive, and a fleet asks nobody; a rule can agree beforehand"),
};

/**
 * Runs a fleet to its end, or until it is asked to end: once, and what runs is waited for; twice, and all of it ends.
 * In both cases it can be resumed.
 */
export async function ranFleet(
  project: Project,
  { json }: { readonly json?: boolean },
  terminal: Terminal,
  open: (env: FleetEnvironment) => Promise<OpenedFleet>,
): Promise<number> {
  using journal = await openJournal(stateDirFrom(terminal.env), project.dir);
  using screen = await fleetScreenFor(terminal, { json: json ?? false });
  const stop = new AbortController();
  const draining = Promise.withResolvers<void>();
  let asked = 0;
  const off = terminal.onStop(() => {
    asked += 1;
    if (asked === 1) {
      draining.resolve();
      screen.tell("corral: what runs is waited for; once more to stop at once");
    } else if (asked === 2) {
      stop.abort(new Error("it was stopped"));
      screen.tell("corral: stopping and cleaning up; once more to leave at once");
    } else terminal.exit(EXIT.cancelled);
  });
  try {
    await using corral = await openProject(project, {
      stateDir: stateDirFrom(terminal.env),
      engineEnv: terminal.env,
      emit: (event) => void (event.type === "trouble" && screen.tell(`corral: ${event.detail}`)),
      // Of thousands of items nobody answers for each; the terminal shows how the fleet stands.
      approver: ASKS_NOBODY,
    });
    const env = {
      run: corral.environment,
      journal,
      onEvent: (event: FleetEvent) => screen.see(event),
      stop: stop.signal,
    };
    const opened = await open(env);
    if (!opened.ok) {
      for (const line of whyNot(opened)) say(terminal, `corral: ${line}`);
      return EXIT.refused;
    }
    await using _ = opened;
    const { fleet } = opened;
    // A fresh cell costs the Engine so much that this is not felt; a scrubbed one is quick enough to feel it.
    if (journal.find(fleet.id)?.spec.reuse === "fresh") keepHeapSmall();
    void draining.promise.then(() => fleet.drain("it was asked to end"));
    const taking = takeAll(fleet.results);
    const summary = await fleet.run();
    await taking;
    screen.end(summary);
    if (summary.state !== "done") return asked > 0 ? EXIT.cancelled : EXIT.someFailed;
    const { succeeded = 0, cached = 0 } = summary.byStatus;
    return succeeded + cached === summary.items ? 0 : EXIT.someFailed;
  } finally {
    off();
  }
}

/** The screen sees each as it comes; here they are only taken, so that the fleet goes on. */
async function takeAll(results: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of results);
}

function whyNot(opened: Extract<OpenedFleet, { ok: false }>): string[] {
  if ("violations" in opened) return describeAll(opened.violations).map(({ message }) => message);
  if ("reason" in opened) return [opened.reason];
  const { problem } = opened;
  switch (problem.code) {
    case "duplicate_key":
      return [
        `two items are called ${JSON.stringify(problem.key)}: ${problem.places.join(" and ")}; --key TEMPLATE names them`,
      ];
    case "collisions":
      return [
        `items would write into each other's folders, so nothing was run:\n${describeCollisions(problem.collisions)}`,
      ];
    case "too_large":
      return [`${problem.place}: the item has ${problem.bytes} bytes; at most ${problem.maxBytes} are allowed`];
    case "too_many":
      return [`there are more than ${problem.maxItems} items`];
  }
}
