import { createWriteStream } from "node:fs";
import { resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import type { EarlierAttempt, ItemLog } from "../../fleet/model/item.ts";
import { inChunks, jsonLine } from "../../fleet/report/results-export.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import type { MachineOfFleet } from "../../operations/fleets.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { durationText } from "../../text/amounts.ts";
import { printable, printableLine, toldApart } from "../../text/visible.ts";
import { fleetsOffered, type SeenItem } from "../host/runs.ts";
import { countOf, dateOf, type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import {
  columns,
  printCutList,
  printJson,
  printResult,
  say,
  type Terminal,
  withoutControls,
} from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";
import type { WatchOptions } from "./map-options.ts";
import { groupText } from "./text.ts";

const DEFAULT_LISTED = 100;

/** `corral fleet ls`: the newest first. */
export async function listFleetsVerb(
  options: ProjectOptions & { readonly limit?: string },
  terminal: Terminal,
): Promise<number> {
  const limit = options.limit === undefined ? DEFAULT_LISTED : countOf("--limit", options.limit);
  const { fleets: list, more } = await (await fleetsOffered(options, terminal)).list(limit);
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
  const fleet = await (await fleetsOffered(options, terminal)).show(asked);
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
  terminal.stdout.write(`${withoutControls(lines.join("\n"))}\n`);
  return 0;
}

export async function resumeVerb(
  fleet: string,
  options: ProjectOptions & WatchOptions,
  terminal: Terminal,
): Promise<number> {
  return await continuedFleet({ kind: "resume", fleet }, options, terminal);
}

export async function retryVerb(
  fleet: string,
  options: ProjectOptions & WatchOptions & { readonly new?: boolean },
  terminal: Terminal,
): Promise<number> {
  return await continuedFleet({ kind: "retry", fleet, asNew: options.new ?? false }, options, terminal);
}

async function continuedFleet(
  start: Exclude<FleetStart, { kind: "new" }>,
  options: ProjectOptions & WatchOptions,
  terminal: Terminal,
): Promise<number> {
  const { service } = terminal;
  if (service !== undefined)
    return await (await import("./remote-fleet.ts")).continuedOverHost(start, options, service, terminal);
  const { loadProject } = await import("../../declarations/project.ts");
  const { ranFleet } = await import("./ran-fleet.ts");
  return await ranFleet(await loadProject(options.project, terminal.env), options, terminal, start);
}

export async function cancelVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const cancelled = await (await fleetsOffered(options, terminal)).cancel(asked);
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
  const { removeFleets } = await import("../../operations/fleets.ts");
  const { loadProject } = await import("../../declarations/project.ts");
  const { env } = terminal;
  const { dir: projectDir } = await loadProject(options.project, env);
  const place = { stateDir: stateDirFrom(env), projectDir, engineEnv: env };
  const removed = await removeFleets(place, { ids, endedBefore });
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
  const offer = await fleetsOffered(options, terminal);
  const pieces = await offer.results(id, options.csv ? "csv" : "jsonl", options.status ?? null);
  await pipeline(pieces, terminal.stdout, { end: false });
  return 0;
}

export async function reportVerb(
  id: string,
  options: ProjectOptions & { readonly output?: string; readonly html?: boolean; readonly junit?: boolean },
  terminal: Terminal,
): Promise<number> {
  if (options.html && options.junit) throw new UsageError("use either --html or --junit");
  const report = await (await fleetsOffered(options, terminal)).results(id, options.junit ? "junit" : "html", null);
  const { output } = options;
  if (output === undefined) await pipeline(report, terminal.stdout, { end: false });
  else {
    await pipeline(report, createWriteStream(resolve(terminal.cwd, output))).catch((error: Error) => {
      throw new UsageError(`--output ${output}: ${error.message}`, { cause: error });
    });
    say(terminal, `The report is in ${output}.`);
  }
  return 0;
}

function section(title: string, rows: readonly (readonly string[])[]): string[] {
  return rows.length === 0 ? [] : ["", `${title}:`, columns(rows)];
}

/** `corral fleet machines`. */
export async function machinesVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const machines = await (await fleetsOffered(options, terminal)).machines();
  if (options.json) printJson(terminal, machines);
  else if (machines.length === 0) say(terminal, "No machine takes part in the queue: `corral work` on one joins it.");
  else {
    const nameOf = toldApart(machines);
    const rows = machines.map((machine) => ({
      cells: [...cellsOf(machine, nameOf), printableLine(machine.labels.join(","), 100)],
      below: machine.fleets.flatMap(({ fleet, running, why }) => [
        ...(running === 0 ? [] : [`runs ${running} of fleet ${fleet}`]),
        ...(why === null ? [] : [`takes none of fleet ${fleet}: ${printableLine(why, 300)}`]),
      ]),
    }));
    terminal.stdout.write(`${table(rows, ["MACHINE", "RUNS", "RATE", "LABELS"]).join("\n")}\n`);
  }
  return 0;
}

/** The machines of one fleet: what each runs, how fast it was in the last minute, and why it takes none. */
export function machineLines(machines: readonly MachineOfFleet[]): string[] {
  const nameOf = toldApart(machines);
  return table(
    machines.map(({ runningInAll, why, ...machine }) => ({
      cells: [
        ...cellsOf(machine, nameOf),
        runningInAll === machine.running ? "" : `${runningInAll - machine.running} of other fleets`,
      ],
      below: why === null ? [] : [`takes none: ${printableLine(why, 300)}`],
    })),
  );
}

function cellsOf(
  { id, running, slots, recentRate }: Omit<MachineOfFleet, "runningInAll" | "why">,
  nameOf: (id: string) => string,
): string[] {
  // What it has claimed ahead waits there.
  const ahead = running > slots ? ` +${running - slots}` : "";
  return [
    printableLine(nameOf(id), 47),
    `${Math.min(running, slots)} of ${slots}${ahead}`,
    `${Math.round((recentRate ?? 0) * 60)}/min`,
  ];
}

interface Row {
  readonly cells: readonly string[];
  /** Sentences about it, which need lines of their own. */
  readonly below: readonly string[];
}

function table(rows: readonly Row[], head?: readonly string[]): string[] {
  if (rows.length === 0) return [];
  const all = [...(head === undefined ? [] : [{ cells: head, below: [] }]), ...rows];
  const lines = columns(all.map(({ cells }) => cells)).split("\n");
  return all.flatMap(({ below }, index) => [lines[index] ?? "", ...below.map((line) => `  ${line}`)]);
}

/** The last lines of a stream that `fleet show` prints; `fleet logs` has the rest. */
const MAX_LINES = 20;

/** `corral fleet show ID KEY`. */
export async function showItemVerb(
  fleet: string,
  key: string,
  options: ProjectOptions,
  terminal: Terminal,
): Promise<number> {
  const item = await (await fleetsOffered(options, terminal)).item(fleet, key);
  printResult(terminal, options.json, item, () => itemText(item));
  return 0;
}

interface LogsOptions extends ProjectOptions {
  readonly failed?: boolean;
  readonly stderr?: boolean;
  readonly raw?: boolean;
}

/** `corral fleet logs ID [KEY]`. One item's streams are written to the streams of their names. */
export async function fleetLogsVerb(
  fleet: string,
  key: string | undefined,
  options: LogsOptions,
  terminal: Terminal,
): Promise<number> {
  const offer = await fleetsOffered(options, terminal);
  if (key === undefined) {
    const logs = await offer.logs(fleet, { failed: options.failed ?? false });
    await pipeline(inChunks(logTexts(logs, options)), terminal.stdout, { end: false });
    return 0;
  }
  if (options.failed) throw new UsageError("use either a key or --failed");
  const { streams, result } = await offer.item(fleet, key);
  const { stdout, stderr } = options.stderr ? { ...streams, stdout: "" } : streams;
  if (options.json) {
    const { status = null, exitCode = null } = result ?? {};
    terminal.stdout.write(jsonLine({ key, status, exitCode, stdout, stderr }));
    return 0;
  }
  for (const [to, printed] of [[terminal.stdout, stdout] as const, [terminal.stderr, stderr] as const]) {
    const text = workerTextTo(to, { ...options, isRecord: true });
    to.write(text.piece(printed));
    to.write(text.end());
  }
  return 0;
}

async function* logTexts(logs: AsyncIterable<ItemLog>, { json, stderr: only }: LogsOptions): AsyncGenerator<string> {
  for await (const { key, status, exitCode, stdout, stderr } of logs) {
    const streams = only ? { stderr } : { stdout, stderr };
    if (json) yield jsonLine({ key, status, exitCode, ...streams });
    else {
      for (const [name, text] of Object.entries(streams))
        if (text !== "")
          yield `==> ${printableLine(key)} (${statusText({ status, exitCode })}) ${name}\n${ended(printable(text))}`;
    }
  }
}

function ended(text: string): string {
  return text.endsWith("\n") ? text : `${text}\n`;
}

function itemText({ key, state, request, result, streams, attempts, machine }: SeenItem): string {
  const lines = [
    `Item ${printableLine(key)}: ${state === "done" ? "" : `${state}; before that `}${resultText(result)}`,
  ];
  if (result?.error) lines.push(printableLine(result.error.message, 1000));
  const line = (label: string, text: string): void => void lines.push(`${label.padEnd(11)} ${text}`);
  lines.push("");
  if (request.place !== undefined) line("from", printableLine(request.place, 300));
  if (request.input !== undefined) line("input", printableLine(JSON.stringify(request.input), 500));
  for (const { path, name } of request.attachments)
    line("attachment", printableLine(path === undefined ? name : `${name}  ${path}`, 500));
  if (request.allowRead) line("may read", printableLine(request.allowRead.join(" "), 500));
  if (request.allowWrite) line("may write", printableLine(request.allowWrite.join(" "), 500));
  if (state === "running" && machine !== null) line("runs on", printableLine(machine, 100));
  if (result?.run)
    line("run", `${result.run}, attempt ${result.attempt}, ${durationText(result.durationMs)}${onMachine(result)}`);
  for (const attempt of attempts) line("earlier", attemptText(attempt));
  for (const [name, text] of Object.entries(streams)) lines.push(...lastOf(name, text));
  return lines.join("\n");
}

function attemptText({ attempt, status, exitCode, stderrLine, endedAt, ...ran }: EarlierAttempt): string {
  const words = stderrLine === null ? "" : `: ${printableLine(stderrLine, 200)}`;
  return `attempt ${attempt}, ${endedAt}${onMachine(ran)}, ${statusText({ status, exitCode })}${words}`;
}

function onMachine({ machine }: Pick<EarlierAttempt, "machine">): string {
  return machine === undefined ? "" : `, on ${printableLine(machine, 100)}`;
}

function resultText(result: SeenItem["result"]): string {
  return result === null ? "no attempt has ended" : statusText(result);
}

function statusText({ status, exitCode }: Pick<ItemLog, "status" | "exitCode">): string {
  const code = exitCode === null || exitCode === 0 ? "" : `, exit code ${exitCode}`;
  return `${printableLine(status.replaceAll("_", " "), 40)}${code}`;
}

function lastOf(name: string, text: string): string[] {
  if (text === "") return [];
  const all = printable(text).replace(/\n$/, "").split("\n");
  const note = all.length > MAX_LINES ? `, the last ${MAX_LINES} of ${all.length} lines` : "";
  return ["", `${name}${note}:`, ...all.slice(-MAX_LINES).map((each) => `  ${each}`)];
}
