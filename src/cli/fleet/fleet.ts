import { createWriteStream } from "node:fs";
import { resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { loadProject } from "../../declarations/project.ts";
import { inChunks, resultsJsonl } from "../../fleet/report/results-export.ts";
import {
  cancelFleet,
  fleetJunit,
  fleetReport,
  fleetResults,
  fleetResultsCsv,
  listFleets,
  removeFleets,
  showFleet,
} from "../../operations/fleets.ts";
import { printableLine } from "../../text/visible.ts";
import { countOf, dateOf, type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import { columns, printCutList, printJson, say, type Terminal } from "../terminal/terminal.ts";
import { showItemVerb } from "./item.ts";
import { machineLines } from "./machines.ts";
import { ranFleet, type WatchOptions } from "./ran-fleet.ts";
import { fleetPlaceOf, groupText } from "./text.ts";

const DEFAULT_LISTED = 100;

/** `corral fleet ls`: the newest first. */
export async function listFleetsVerb(
  options: ProjectOptions & { readonly limit?: string },
  terminal: Terminal,
): Promise<number> {
  const limit = options.limit === undefined ? DEFAULT_LISTED : countOf("--limit", options.limit);
  const found = await listFleets(await fleetPlaceOf(options, terminal), limit + 1);
  const [list, more] = [found.slice(0, limit), found.length > limit];
  printCutList(
    terminal,
    options.json,
    { name: "fleets", list, more, order: "newest" },
    {
      head: ["FLEET", "WORKER", "STATE", "DONE", "FAILED", "CREATED"],
      rowOf: ({ id, spec, state, counts: { total, done, failed }, createdAt }) => {
        return [id, printableLine(spec.worker, 40), state, `${done}/${total}`, String(failed), createdAt];
      },
      none: "There are no fleets.",
    },
  );
  return 0;
}

export async function showFleetVerb(
  asked: string,
  key: string | undefined,
  options: ProjectOptions,
  terminal: Terminal,
): Promise<number> {
  if (key !== undefined) return await showItemVerb(asked, key, options, terminal);
  const fleet = await showFleet(await fleetPlaceOf(options, terminal), asked);
  if (options.json) {
    printJson(terminal, fleet);
    return 0;
  }
  const { id, spec, state, why, counts, summary, failures, slowest, lastFailures, machines } = fleet;
  const lines = [
    `Fleet ${id}: ${printableLine(spec.worker, 80)}, ${printableLine(spec.source, 200)}`,
    `${state}${why === null ? "" : ` (${printableLine(why, 200)})`}: ${counts.done} of ${counts.total} done, ${counts.failed} failed${counts.pending === 0 ? "" : `, ${counts.pending} pending`}`,
    ...(summary.length === 0
      ? []
      : ["", columns(summary.map(({ status, code, count }) => [String(count), status, code ?? ""]))]),
    ...(machines.length === 0 ? [] : ["", "Machines:", ...machineLines(machines)]),
    ...(failures.length === 0 ? [] : ["", "Failures:", ...failures.map(groupText)]),
    ...section(
      "Slowest",
      slowest
        .filter(({ status }) => status !== "cached")
        .map(({ key, durationMs, status }) => [printableLine(key, 60), `${durationMs} ms`, status]),
    ),
    ...section(
      "Last failures",
      lastFailures.map(({ key, status, error }) => [
        printableLine(key, 60),
        status,
        printableLine(error?.message ?? "", 120),
      ]),
    ),
  ];
  terminal.stdout.write(`${lines.join("\n")}\n`);
  return 0;
}

export async function resumeVerb(
  fleet: string,
  options: ProjectOptions & WatchOptions,
  terminal: Terminal,
): Promise<number> {
  return await ranFleet(await loadProject(options.project, terminal.env), options, terminal, { kind: "resume", fleet });
}

export async function retryVerb(
  fleet: string,
  options: ProjectOptions & WatchOptions & { readonly new?: boolean },
  terminal: Terminal,
): Promise<number> {
  const start = { kind: "retry", fleet, asNew: options.new ?? false } as const;
  return await ranFleet(await loadProject(options.project, terminal.env), options, terminal, start);
}

export async function cancelVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const cancelled = await cancelFleet(await fleetPlaceOf(options, terminal), asked);
  const id = cancelled.fleet;
  if (cancelled.outcome === "ended") say(terminal, `Fleet ${id} has already ended: it is ${cancelled.state}.`);
  else if (cancelled.outcome === "removed") say(terminal, `Fleet ${id} was never loaded; it is removed.`);
  else say(terminal, `Fleet ${id} is cancelled; ${cancelled.items} items will not run.`);
  return 0;
}

export async function removeFleetsVerb(
  ids: readonly string[],
  options: ProjectOptions & { readonly before?: string },
  terminal: Terminal,
): Promise<number> {
  const { before } = options;
  if (ids.length === 0 && before === undefined) throw new UsageError("name fleets to remove, or use --before DATE");
  const endedBefore = before === undefined ? null : dateOf("--before", before);
  const removed = await removeFleets(await fleetPlaceOf(options, terminal), { ids, endedBefore });
  say(terminal, `${removed.length} ${removed.length === 1 ? "fleet is" : "fleets are"} removed.`);
  return 0;
}

export async function resultsVerb(
  id: string,
  options: ProjectOptions & {
    readonly csv?: boolean;
    readonly jsonl?: boolean;
    readonly json?: boolean;
    readonly status?: string;
  },
  terminal: Terminal,
): Promise<number> {
  if (options.csv && (options.jsonl || options.json)) throw new UsageError("use either --csv or --jsonl");
  const [place, filter] = [await fleetPlaceOf(options, terminal), { status: options.status ?? null }];
  const text = options.csv
    ? await fleetResultsCsv(place, id, filter)
    : resultsJsonl(await fleetResults(place, id, filter));
  await pipeline(inChunks(text), terminal.stdout, { end: false });
  return 0;
}

export async function reportVerb(
  id: string,
  options: ProjectOptions & { readonly output?: string; readonly html?: boolean; readonly junit?: boolean },
  terminal: Terminal,
): Promise<number> {
  if (options.html && options.junit) throw new UsageError("use either --html or --junit");
  const report = await (options.junit ? fleetJunit : fleetReport)(await fleetPlaceOf(options, terminal), id);
  const { output } = options;
  if (output === undefined) await pipeline(inChunks(report), terminal.stdout, { end: false });
  else {
    await pipeline(inChunks(report), createWriteStream(resolve(terminal.cwd, output))).catch((error: Error) => {
      throw new UsageError(`--output ${output}: ${error.message}`, { cause: error });
    });
    say(terminal, `The report is in ${output}.`);
  }
  return 0;
}

function section(title: string, rows: readonly (readonly string[])[]): string[] {
  return rows.length === 0 ? [] : ["", `${title}:`, columns(rows)];
}
