import { pipeline } from "node:stream/promises";
import type { EarlierAttempt, ItemLog } from "../../fleet/model/item.ts";
import { inChunks, jsonLine } from "../../fleet/report/results-export.ts";
import { type FleetItem, fleetLogs, showItem } from "../../operations/fleets.ts";
import { durationText } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import { printResult, type Terminal } from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";
import { fleetPlaceOf } from "./text.ts";

/** The last lines of a stream that `fleet show` prints; `fleet logs` has the rest. */
const MAX_LINES = 20;

/** `corral fleet show ID KEY`. */
export async function showItemVerb(
  fleet: string,
  key: string,
  options: ProjectOptions,
  terminal: Terminal,
): Promise<number> {
  const item = await showItem(await fleetPlaceOf(options, terminal), fleet, key);
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
  const place = await fleetPlaceOf(options, terminal);
  if (key === undefined) {
    const logs = await fleetLogs(place, fleet, { failed: options.failed ?? false });
    await pipeline(inChunks(logTexts(logs, options)), terminal.stdout, { end: false });
    return 0;
  }
  if (options.failed) throw new UsageError("use either a key or --failed");
  const { streams, result } = await showItem(place, fleet, key);
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

function itemText({ key, state, request, result, streams, attempts, machine }: FleetItem): string {
  const lines = [
    `Item ${printableLine(key)}: ${state === "done" ? "" : `${state}; before that `}${resultText(result)}`,
  ];
  if (result?.error) lines.push(printableLine(result.error.message, 1000));
  const line = (label: string, text: string): void => void lines.push(`${label.padEnd(11)} ${text}`);
  lines.push("");
  line("from", printableLine(request.place, 300));
  if (request.input !== undefined) line("input", printableLine(JSON.stringify(request.input), 500));
  for (const { path, name } of request.attachments) line("attachment", printableLine(`${name}  ${path}`, 500));
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

function resultText(result: FleetItem["result"]): string {
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
