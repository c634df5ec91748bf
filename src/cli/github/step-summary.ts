import { constants } from "node:fs";
import type { FleetSummary } from "../../fleet/events.ts";
import { type FleetPlace, showFleet } from "../../operations/fleets.ts";
import { openRegular } from "../../platform/open-regular.ts";
import type { RunResult } from "../../run/model/result.ts";
import { printableLine } from "../../text/visible.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { fleetHtml, runHtml } from "./summary-html.ts";

type Step = Pick<Terminal, "env" | "stderr">;

/** GitHub shows no summary of a step that is larger. */
const MAX_FILE_BYTES = 1024 * 1024;

/** Appends how a run ended to the file that GitHub Actions shows as the summary of a step, if there is one. */
export async function addRunToStepSummary(result: RunResult, terminal: Step): Promise<void> {
  await add(terminal, async () => runHtml(result));
}

/** The same for a fleet. `place`: of its journal. */
export async function addFleetToStepSummary(summary: FleetSummary, place: FleetPlace, terminal: Step): Promise<void> {
  await add(terminal, async () => fleetHtml(summary, await showFleet(place, summary.fleet)));
}

/** Whether it can be written does not change the result of the run. */
async function add(terminal: Step, htmlOf: () => Promise<string>): Promise<void> {
  const path = terminal.env.GITHUB_STEP_SUMMARY;
  if (path === undefined || path === "") return;
  try {
    const text = `\n\n${await htmlOf()}\n\n`;
    await using file = await openRegular(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT, 0o644);
    const { size } = await file.stat();
    if (size + Buffer.byteLength(text) > MAX_FILE_BYTES) throw new Error("it would have more than 1 MiB");
    await file.appendFile(text);
  } catch (error) {
    const why = printableLine((error as Error).message, 300);
    say(terminal, `corral: the summary of this step cannot be written to $GITHUB_STEP_SUMMARY: ${why}`);
  }
}
