import { counted, durationText } from "../../fleet/report/measures/quantity.ts";
import { usageOfRun } from "../../operations/machine.ts";
import { listRuns, type RunsToRemove, removeRuns, runsToRemove, showRun, stopRun } from "../../operations/runs.ts";
import { printableLine } from "../../text/visible.ts";
import { agreesTo } from "../terminal/agrees.ts";
import { countOf, dateOf, type ProjectOptions, placeOf, UsageError } from "../terminal/arguments.ts";
import { printCutList, printJson, printResult, say, type Terminal } from "../terminal/terminal.ts";
import { ageText, runText, statusText } from "./runs-text.ts";

interface ListOptions extends ProjectOptions {
  readonly worker?: string;
  readonly status?: string;
  readonly limit?: string;
  readonly allProjects?: boolean;
}

interface RemoveOptions extends ProjectOptions {
  readonly before?: string;
  readonly all?: boolean;
  readonly yes?: boolean;
}

const DEFAULT_LISTED = 50;

/** `corral runs ls`: the newest first. */
export async function listVerb(options: ListOptions, terminal: Terminal): Promise<number> {
  const { worker, status, allProjects = false } = options;
  const limit = options.limit === undefined ? DEFAULT_LISTED : countOf("--limit", options.limit);
  const filter = {
    limit: limit + 1,
    ...(worker === undefined ? {} : { worker }),
    ...(status === undefined ? {} : { status: status.replaceAll(" ", "_") }),
    allProjects,
  };
  const { runs: found, unreadable } = await listRuns(await placeOf(options, terminal), filter);
  const nowMs = Date.now();
  const [list, more] = [found.slice(0, limit), found.length > limit];
  printCutList(
    terminal,
    options.json,
    { name: "runs", list, more, order: "newest" },
    {
      head: ["RUN", "STATUS", "WORKER", "BEGAN", "TOOK", ...(allProjects ? ["PROJECT"] : [])],
      rowOf: (record) => {
        const { id, kind, worker: of, queuedAt, durationMs, project } = record;
        const took = durationMs === null ? "-" : durationText(durationMs);
        const shown = printableLine(kind === "session" ? `${of} (session)` : of, 40);
        const began = ageText(nowMs - Date.parse(queuedAt));
        return [id, statusText(record), shown, began, took, ...(allProjects ? [printableLine(project)] : [])];
      },
      none: "There are no runs. Items of fleets are in `corral fleet ls`.",
    },
  );
  if (unreadable > 0) say(terminal, `corral: ${unreadable} records cannot be read`);
  return 0;
}

export async function showVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const place = await placeOf(options, terminal);
  const record = await showRun(place, asked);
  const isRunning = record.status === "running";
  const now = isRunning ? await usageOfRun({ stateDir: place.stateDir, engineEnv: terminal.env }, record.id) : null;
  printResult(terminal, options.json, now === null ? record : { ...record, usage: now }, () =>
    runText(record, Date.now(), now),
  );
  return 0;
}

/** Exit status 1 if it has not ended in time. */
export async function stopVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const stopped = await stopRun(await placeOf(options, terminal), asked);
  const { run, outcome, status } = stopped;
  if (options.json) printJson(terminal, stopped);
  else if (outcome === "ended") say(terminal, `Run ${run} has already ended: it is ${printableLine(status, 40)}.`);
  else if (outcome === "stopped") say(terminal, `Run ${run} is stopped: it is ${printableLine(status, 40)}.`);
  else
    say(
      terminal,
      `corral: run ${run} was asked to stop, and has not ended yet; \`corral runs show ${run}\` looks again`,
    );
  return outcome === "asked" ? 1 : 0;
}

export async function removeVerb(ids: readonly string[], options: RemoveOptions, terminal: Terminal): Promise<number> {
  const { before, all = false } = options;
  const ways = [ids.length > 0, before !== undefined, all].filter((way) => way).length;
  if (ways !== 1) throw new UsageError("name runs to remove, or use --before DATE or --all");
  const place = await placeOf(options, terminal);
  const which: RunsToRemove = before === undefined ? { ids, all } : { before: dateOf("--before", before) };
  const found = await runsToRemove(place, which);
  const what = counted(found.length, "run");
  const isAgreed = options.yes || found.length === 0 || (await agreesTo(`Remove the history of ${what}?`, terminal));
  const removed = isAgreed ? await removeRuns(place, which) : [];
  if (options.json) printJson(terminal, { removed });
  else say(terminal, isAgreed ? `${removed.length} of ${what} removed from the history.` : "Nothing was removed.");
  return 0;
}
