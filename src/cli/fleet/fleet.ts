import { createWriteStream } from "node:fs";
import { resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { loadProject } from "../../declarations/project.ts";
import { nearest } from "../../declarations/yaml/issue.ts";
import { resumeFleet, startFleet } from "../../fleet/fleet.ts";
import type { FleetRecord } from "../../fleet/journal/fleets.ts";
import type { FleetJournal } from "../../fleet/journal/journal.ts";
import type { ItemRequest } from "../../fleet/model/item.ts";
import { openJournal } from "../../fleet/open-journal.ts";
import { reportHtml } from "../../fleet/report/html.ts";
import { STATUSES } from "../../fleet/report/measures/outcome.ts";
import { inChunks, resultsCsv, resultsJsonl } from "../../fleet/report/results-export.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import { printableLine } from "../../operations/wording/printable.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { dateOf } from "../terminal/date.ts";
import { columns } from "../terminal/table.ts";
import { printJson, say, type Terminal } from "../terminal/terminal.ts";
import { UsageError } from "../terminal/usage-error.ts";
import { ranFleet } from "./ran-fleet.ts";

interface FleetOptions {
  readonly project: string;
  readonly json?: boolean;
}

const MAX_LISTED = 100;
const MAX_SHOWN = 10;

export async function listVerb(options: FleetOptions, terminal: Terminal): Promise<number> {
  using journal = await projectJournal(options, terminal);
  const fleets = journal.list(MAX_LISTED);
  if (options.json) printJson(terminal, fleets);
  else if (fleets.length === 0) say(terminal, "There are no fleets.");
  else {
    const rows = fleets.map(({ id, spec, state, counts, createdAt }) => {
      const { total, done, failed } = counts;
      return [id, printableLine(spec.worker, 40), state, `${done}/${total}`, String(failed), createdAt];
    });
    terminal.stdout.write(`${columns([["FLEET", "WORKER", "STATE", "DONE", "FAILED", "CREATED"], ...rows])}\n`);
  }
  return 0;
}

export async function showVerb(id: string, options: FleetOptions, terminal: Terminal): Promise<number> {
  using journal = await projectJournal(options, terminal);
  const fleet = known(journal, id);
  const summary = journal.summary(id);
  const [slowest, failures] = [journal.slowest(id, MAX_SHOWN), journal.lastFailures(id, MAX_SHOWN)];
  if (options.json) {
    printJson(terminal, { ...fleet, summary, slowest, lastFailures: failures });
    return 0;
  }
  const { spec, state, why, counts } = fleet;
  const lines = [
    `Fleet ${id}: ${printableLine(spec.worker, 80)}, ${printableLine(spec.source, 200)}`,
    `${state}${why === null ? "" : ` (${printableLine(why, 200)})`}: ${counts.done} of ${counts.total} done, ${counts.failed} failed`,
    "",
    columns(summary.map(({ status, code, count }) => [String(count), status, code ?? ""])),
    ...section(
      "Slowest",
      slowest.map(({ key, durationMs, status }) => [printableLine(key, 60), `${durationMs} ms`, status]),
    ),
    ...section(
      "Last failures",
      failures.map(({ key, status, error }) => [
        printableLine(key, 60),
        status,
        printableLine(error?.message ?? "", 120),
      ]),
    ),
  ];
  terminal.stdout.write(`${lines.join("\n")}\n`);
  return 0;
}

export async function resumeVerb(id: string, options: FleetOptions, terminal: Terminal): Promise<number> {
  const project = await loadProject(options.project);
  return await ranFleet(project, options, terminal, async (env) => {
    known(env.journal, id);
    return await resumeFleet(id, env);
  });
}

/** The failed items, asked for as they were, by the same worker: a fleet of their own, that says whose items they are. */
export async function retryVerb(id: string, options: FleetOptions, terminal: Terminal): Promise<number> {
  const project = await loadProject(options.project);
  return await ranFleet(project, options, terminal, async (env) => {
    const { spec, state } = known(env.journal, id);
    if (state === "running" || state === "loading")
      return { ok: false, reason: `fleet ${id} is ${state}; its failed items can be tried again when it has ended` };
    return await startFleet({ ...spec, source: `failed items of ${id}` }, failedItems(env.journal, id), env);
  });
}

async function* failedItems(journal: FleetJournal, id: string): AsyncGenerator<ItemRequest> {
  let index = 0;
  for (const request of journal.failed(id)) {
    yield { ...request, index };
    index += 1;
  }
}

/** Whoever runs it hears of it at the next claim; where nobody does, what it left is ended here. */
export async function cancelVerb(id: string, options: FleetOptions, terminal: Terminal): Promise<number> {
  const project = await loadProject(options.project);
  using journal = await openJournal(stateDirFrom(terminal.env), project.dir);
  const { state, endedAt } = known(journal, id);
  if (endedAt !== null) {
    say(terminal, `Fleet ${id} has ended already: it is ${state}.`);
    return 0;
  }
  if (state === "loading" && (await journal.discard(id))) {
    say(terminal, `Fleet ${id} was never loaded; it is forgotten.`);
    return 0;
  }
  const why = "somebody cancelled it";
  let waited = await journal.queue(id).cancelQueued(why);
  const taken = journal.takeOver(id);
  if (taken.ok) {
    const { driver } = await openEngine({ stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env });
    await driver.reap();
    for (const item of taken.running) await journal.fenced(id, item);
    waited += await journal.queue(id).cancelQueued(why);
    journal.end(id);
  }
  say(terminal, `Fleet ${id} is cancelled; ${waited} items will not run.`);
  return 0;
}

/** Only those that have ended: of any other something may still be wanted. Their items are run again where they come up again. */
export async function removeVerb(
  ids: readonly string[],
  options: FleetOptions & { readonly before?: string },
  terminal: Terminal,
): Promise<number> {
  const { before } = options;
  if (ids.length === 0 && before === undefined) throw new UsageError("name fleets to forget, or say --before DATE");
  const until = before === undefined ? null : dateOf("--before", before);
  using journal = await projectJournal(options, terminal);
  const old =
    until === null ? [] : journal.list(Number.MAX_SAFE_INTEGER).filter((fleet) => hasEndedBefore(fleet, until));
  const named = ids.map((id) => known(journal, id));
  for (const { id, state, endedAt } of named) {
    if (endedAt !== null) continue;
    const way = state === "paused" ? `; \`corral fleet cancel ${id}\` ends it` : "";
    throw new UsageError(`fleet ${id} is ${state}, and only one that has ended can be forgotten${way}`);
  }
  let forgotten = 0;
  for (const id of new Set([...named, ...old].map((fleet) => fleet.id))) {
    if (await journal.forget(id)) forgotten += 1;
  }
  journal.shrink();
  say(terminal, `${forgotten} ${forgotten === 1 ? "fleet is" : "fleets are"} forgotten.`);
  return 0;
}

function hasEndedBefore({ endedAt }: FleetRecord, until: number): boolean {
  return endedAt !== null && Date.parse(endedAt) < until;
}

export async function resultsVerb(
  id: string,
  options: FleetOptions & { readonly csv?: boolean; readonly jsonl?: boolean; readonly status?: string },
  terminal: Terminal,
): Promise<number> {
  if (options.csv && options.jsonl) throw new UsageError("--csv or --jsonl, not both");
  if (options.status !== undefined && !STATUSES.includes(options.status))
    throw new UsageError(
      `no item has the status ${printableLine(options.status, 40)}${nearest(options.status, STATUSES) ?? `; there are: ${STATUSES.join(", ")}`}`,
    );
  using journal = await projectJournal(options, terminal);
  known(journal, id);
  const results = journal.results(id, { status: options.status ?? null });
  const text = options.csv ? resultsCsv(results) : resultsJsonl(results);
  await pipeline(inChunks(text), terminal.stdout, { end: false });
  return 0;
}

export async function reportVerb(
  id: string,
  options: FleetOptions & { readonly output?: string },
  terminal: Terminal,
): Promise<number> {
  using journal = await projectJournal(options, terminal);
  const { spec, counts, ...fleet } = known(journal, id);
  const { worker, source, policy, reuse, concurrency } = spec;
  const about = { ...fleet, worker, source, policy, reuse, concurrency, items: counts.total };
  const html = reportHtml({ fleet: about, results: journal.results(id), madeAt: new Date().toISOString() });
  const { output } = options;
  if (output === undefined) await pipeline(inChunks(html), terminal.stdout, { end: false });
  else {
    await pipeline(inChunks(html), createWriteStream(resolve(terminal.cwd, output))).catch((error: Error) => {
      throw new UsageError(`--output ${output}: ${error.message}`, { cause: error });
    });
    say(terminal, `The report is in ${output}.`);
  }
  return 0;
}

async function projectJournal({ project }: FleetOptions, terminal: Terminal): Promise<FleetJournal> {
  return await openJournal(stateDirFrom(terminal.env), (await loadProject(project)).dir);
}

function known(journal: FleetJournal, id: string): FleetRecord {
  const fleet = journal.find(id);
  if (fleet === null)
    throw new UsageError(`there is no fleet ${JSON.stringify(id)} in this project; \`corral fleet ls\` lists them`);
  return fleet;
}

function section(title: string, rows: readonly (readonly string[])[]): string[] {
  return rows.length === 0 ? [] : ["", `${title}:`, columns(rows)];
}
