import { confirm } from "@clack/prompts";
import type { StreamName } from "../../history/recording.ts";
import type { RecordedCall, RecordedStream, RunRecord } from "../../history/run-record.ts";
import type { CellUsageNow } from "../../isolation/port/cell.ts";
import type { RunsToRemove } from "../../operations/runs.ts";
import { agoText, counted, durationText, roughBytesText } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { runsOffered, type SeenRun } from "../host/runs.ts";
import { countOf, dateOf, type ProjectOptions, projectPlaceOf, UsageError } from "../terminal/arguments.ts";
import {
  columns,
  EXIT,
  printCutList,
  printJson,
  printResult,
  say,
  stoppable,
  type Terminal,
} from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";

const MAX_NAME = 80;
/** Calls beyond it are counted. */
const MAX_CALLS = 200;

/** One run in detail, for people. `now`: what its container uses, if it runs. */
function runText(record: SeenRun, nowMs: number, now: CellUsageNow | null = null): string {
  const { id, worker, kind, project, input, attachments, queuedAt, startedAt, endedAt, stdout, stderr } = record;
  const usage = now ?? record.usage;
  const { error, policy, image, model, limits, changeset, network, continues, leftOut, calls } = record;
  const rows: [string, string | null][] = [
    ["project", name(project, 500)],
    ["requested", `${queuedAt} (${agoText(queuedAt, nowMs)})`],
    ["started", startedAt],
    ["ended", endedAt],
    ["took", record.durationMs === null ? null : durationText(record.durationMs)],
    ["process", record.status === "running" || record.status === "interrupted" ? pidOf(record.owner ?? null) : null],
    ["input", input === null ? null : `${roughBytesText(input.bytes)}, sha256 ${shortDigest(input.sha256)}`],
    ...attachments.map(attachmentRow),
    ["arguments", record.arguments.length === 0 ? null : name(JSON.stringify(record.arguments), 500)],
    ["policy", policy === null ? null : name(policy)],
    ["image", image === null ? null : name(image)],
    ["model", model === null ? null : name(model)],
    ["limits", limits === null ? null : limitsText(limits)],
    ["memory", memoryText(usage, now)],
    ["processor", usage?.cpuMs == null ? null : durationText(usage.cpuMs)],
    ["network", network === null ? null : networkText(network)],
    ["changes", changeset === null ? null : countsText(changeset.counts)],
    ["changeset", changeset?.id ?? null],
    ["continues", continues === null ? null : name(continues)],
    ["transcript", model === null ? null : id],
    ["stdout", streamText(stdout, record.truncated)],
    ["stderr", streamText(stderr, record.truncated)],
  ];
  const told = rows.filter((row): row is [string, string] => row[1] !== null);
  const title = `${kind === "session" ? "Session" : "Run"} ${id} of ${name(worker)}: ${statusText(record)}`;
  const why = error === null ? [] : ["", `${name(error.code)}: ${printableLine(error.message, 2000)}`];
  const lines = callLines(calls, 1);
  const more = lines.length - MAX_CALLS + leftOut;
  const below = lines.length + leftOut === 0 ? [] : ["", "calls:", ...lines.slice(0, MAX_CALLS)];
  return [
    title,
    ...columns(told)
      .split("\n")
      .map((line) => `  ${line}`),
    ...why,
    ...below,
    ...(more > 0 ? [`  and ${more} more`] : []),
  ].join("\n");
}

function memoryText(usage: RunRecord["usage"], now: CellUsageNow | null): string | null {
  const parts = now === null || now.memoryBytes === null ? [] : [`${roughBytesText(now.memoryBytes)} now`];
  if (usage?.memoryBytesPeak != null) parts.push(`${roughBytesText(usage.memoryBytesPeak)} at most`);
  return parts.length === 0 ? null : parts.join(", ");
}

/** `failed (exit code 3)`. */
function statusText({ status, exitCode, signal }: Pick<RecordedCall, "status" | "exitCode" | "signal">): string {
  const shown = name(status.replaceAll("_", " "), 40);
  if (signal !== null) return `${shown} (${name(signal, 20)})`;
  return exitCode === null || exitCode === 0 ? shown : `${shown} (exit code ${exitCode})`;
}

function callLines(calls: readonly RecordedCall[], depth: number): string[] {
  return calls.flatMap((call) => {
    const took = call.durationMs === null ? "" : `, ${durationText(call.durationMs)}`;
    const beside = call.service === null ? "" : `service ${name(call.service, 63)}: `;
    const line = `${"  ".repeat(Math.min(depth, 10))}${beside}${name(call.worker, 40)} ${name(call.run, 20)}: ${statusText(call)}${took}`;
    return [line, ...callLines(call.calls, depth + 1)];
  });
}

function attachmentRow({ name: file, bytes, sha256 }: RunRecord["attachments"][number]): [string, string] {
  const size = bytes === null ? "" : `, ${roughBytesText(bytes)}`;
  return ["attachment", `${name(file)}${size}${sha256 === null ? "" : `, sha256 ${shortDigest(sha256)}`}`];
}

/** Enough to compare by eye; the JSON has all of it. */
function shortDigest(sha256: string): string {
  return `${sha256.slice(0, 16)}…`;
}

function streamText({ bytes, keptBytes }: RecordedStream, truncated: boolean): string | null {
  if (bytes === 0) return null;
  const kept = bytes === keptBytes ? "" : `, of which ${roughBytesText(keptBytes)} are kept`;
  return `${roughBytesText(bytes)}${kept}${truncated ? "; it printed more than its limit" : ""}`;
}

function limitsText({ timeoutMs = 0, memoryBytes = 0, cpus = 0 }: Readonly<Record<string, number>>): string {
  return `${durationText(timeoutMs)}, ${roughBytesText(memoryBytes)} of memory, ${cpus} cpus`;
}

function networkText({ allowed, denied }: Readonly<Record<string, unknown>>): string {
  const many = (list: unknown): number => (Array.isArray(list) ? list.length : 0);
  return `${many(allowed)} hosts reached, ${many(denied)} denied`;
}

function countsText(counts: Readonly<Record<string, number>>): string {
  const some = Object.entries(counts).filter(([, count]) => count > 0);
  return some.map(([outcome, count]) => `${count} ${name(outcome, 20)}`).join(", ") || "none";
}

/** The fourth part of an owner. */
function pidOf(owner: string | null): string | null {
  return owner === null ? null : name(owner.split("|")[3] ?? "unknown", 20);
}

function name(text: string, max = MAX_NAME): string {
  return printableLine(text, max);
}

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
export async function listRunsVerb(options: ListOptions, terminal: Terminal): Promise<number> {
  const { worker, status, allProjects = false } = options;
  const limit = options.limit === undefined ? DEFAULT_LISTED : countOf("--limit", options.limit);
  const filter = {
    limit: limit + 1,
    ...present({ worker }),
    ...(status === undefined ? {} : { status: status.replaceAll(" ", "_") }),
    allProjects,
  };
  const { runs: found, unreadable } = await (await runsOffered(options, terminal)).list(filter);
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
        const began = agoText(queuedAt, nowMs);
        return [id, statusText(record), shown, began, took, ...(allProjects ? [printableLine(project)] : [])];
      },
      none: "There are no runs. Items of fleets are in `corral fleet ls`.",
    },
  );
  if (unreadable > 0) say(terminal, `corral: ${unreadable} records cannot be read`);
  return 0;
}

export async function showRunVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const runs = await runsOffered(options, terminal);
  const record = await runs.show(asked);
  const now = record.status === "running" ? await runs.usage(record.id) : null;
  printResult(terminal, options.json, now === null ? record : { ...record, usage: now }, () =>
    runText(record, Date.now(), now),
  );
  return 0;
}

/** Exit status 1 if it has not ended in time. */
export async function stopVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const stopped = await (await runsOffered(options, terminal)).stop(asked);
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

export async function removeRunsVerb(
  ids: readonly string[],
  options: RemoveOptions,
  terminal: Terminal,
): Promise<number> {
  const { before, all = false } = options;
  const ways = [ids.length > 0, before !== undefined, all].filter((way) => way).length;
  if (ways !== 1) throw new UsageError("name runs to remove, or use --before DATE or --all");
  const { removeRuns, runsToRemove } = await import("../../operations/runs.ts");
  const place = await projectPlaceOf(options, terminal);
  const which: RunsToRemove = before === undefined ? { ids, all } : { before: dateOf("--before", before) };
  const found = await runsToRemove(place, which);
  const what = counted(found.length, "run");
  const isAgreed = options.yes || found.length === 0 || (await agreesTo(`Remove the history of ${what}?`, terminal));
  const removed = isAgreed ? await removeRuns(place, which) : [];
  if (options.json) printJson(terminal, { removed });
  else say(terminal, isAgreed ? `${removed.length} of ${what} removed from the history.` : "Nothing was removed.");
  return 0;
}

/** Asks before something is removed for good. Where no person is at a terminal, the command itself is the answer. */
async function agreesTo(question: string, { stdin, stderr }: Pick<Terminal, "stdin" | "stderr">): Promise<boolean> {
  if (stdin.isTTY !== true || stderr.isTTY !== true) return true;
  return (await confirm({ message: question, initialValue: false, input: stdin, output: stderr })) === true;
}

interface LogsOptions extends Pick<ProjectOptions, "project"> {
  readonly stdout?: boolean;
  readonly stderr?: boolean;
  readonly service?: string;
  readonly follow?: boolean;
  readonly lines?: string;
  readonly raw?: boolean;
}

/**
 * `corral runs logs`: both streams, each to its own; one of them, if it is asked for, to standard output. Bytes as they are; on
 * a terminal without control sequences.
 */
export async function runLogsVerb(asked: string, options: LogsOptions, terminal: Terminal): Promise<number> {
  const { follow = false } = options;
  const only = options.stdout === options.stderr ? null : options.stdout ? "stdout" : "stderr";
  const streams: readonly StreamName[] = only === null ? ["stdout", "stderr"] : [only];
  using stop = stoppable(terminal, () => {});
  const pieces = await (await runsOffered(options, terminal)).output(asked, {
    streams,
    follow,
    signal: stop.signal,
    ...present({ service: options.service }),
    ...(options.lines === undefined ? {} : { lines: linesOf(options.lines) }),
  });
  const writers = new Map(
    streams.map((stream) => {
      const to = only === null && stream === "stderr" ? terminal.stderr : terminal.stdout;
      return [stream, writerTo(to, options)] as const;
    }),
  );
  for await (const { stream, bytes, missingBytes } of pieces) {
    if (missingBytes > 0) say(terminal, `\ncorral: ${missingBytes} bytes of ${stream} are not kept`);
    await writers.get(stream)?.(bytes);
    if (stop.signal.aborted) return EXIT.cancelled;
  }
  for (const end of writers.values()) await end(null);
  return stop.signal.aborted ? EXIT.cancelled : 0;
}

/** Null ends the text: a character that is cut off becomes U+FFFD. */
function writerTo(to: NodeJS.WriteStream, options: LogsOptions): (bytes: Buffer | null) => Promise<void> {
  const text = workerTextTo(to, { ...options, isRecord: true });
  return async (bytes) => {
    const piece = bytes === null ? text.end() : text.piece(bytes);
    if (piece.length === 0 || to.write(piece) || !to.writable) return;
    await new Promise<void>((resolve) => {
      const caughtUp = (): void => {
        to.off("drain", caughtUp).off("close", caughtUp);
        resolve();
      };
      to.on("drain", caughtUp).on("close", caughtUp);
    });
  };
}

function linesOf(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`--lines takes a number, not ${JSON.stringify(text.slice(0, 80))}`);
}
