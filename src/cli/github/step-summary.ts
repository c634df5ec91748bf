import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { escaped } from "../../fleet/report/measures/gathered.ts";
import type { FleetSummary } from "../../fleet/running/events.ts";
import type { CiEnd } from "../../operations/ci/ci-end.ts";
import { type CiFinding, ciTotals, findingsIn } from "../../operations/ci/findings.ts";
import { type FleetDetails, type FleetPlace, showFleet } from "../../operations/fleets.ts";
import { openRegular } from "../../platform/write-file.ts";
import type { RunResult } from "../../run/model/result.ts";
import { counted, countText, durationText } from "../../text/amounts.ts";
import { clipped, printableLine } from "../../text/visible.ts";
import { exitStatusOf, say, type Terminal } from "../terminal/terminal.ts";

/*
 * HTML in a file of Markdown. An HTML block ends at an empty line, and there is none here: line breaks of texts become spaces or character
 * references. All that a worker, an item or a host chose is in `code` or `pre`, where GitHub makes no links, mentions or pictures of it.
 */

const MAX_OUTPUT_CHARS = 4000;
const MAX_DENIED = 10;
const MAX_REASONS = 10;

/** How a run ended. */
export function runHtml(result: RunResult): string {
  const { worker, status, error, durationMs, changeset, network, stdout, stderr } = result;
  const succeeded = status === "succeeded";
  const rows = [
    row("corral run", code(worker)),
    row("result", `${words(status)}, exit status ${exitStatusOf(result)}, ${durationText(durationMs)}`),
    ...(error === null ? [] : [row("error", `${code(error.code)} ${code(error.message)}`)]),
    ...(changeset === null ? [] : [row("changes", countsText(changeset.counts))]),
    ...(network === undefined || network.denied.length === 0 ? [] : [row("denied hosts", deniedText(network.denied))]),
  ];
  const ends = succeeded ? [] : [details("standard output", stdout), details("standard error", stderr)];
  return [table(rows), ...ends].filter((part) => part !== "").join("\n");
}

/** How a fleet ended. */
export function fleetHtml(
  { fleet, state, why, items, done, byStatus, byReason, durationMs }: FleetSummary,
  { spec, lastFailures }: Pick<FleetDetails, "spec" | "lastFailures">,
): string {
  const reasons = Object.entries(byReason).sort(([, a], [, b]) => b - a);
  const summary = table([
    row("corral map", `${code(spec.worker)}, fleet ${code(fleet)}`),
    row("result", `${words(state)}: ${countText(done)} of ${counted(items, "item")} in ${durationText(durationMs)}`),
    ...(why === null ? [] : [row("why", code(why))]),
    row("items", countsText(byStatus)),
    ...reasons.slice(0, MAX_REASONS).map(([reason, count]) => row(code(reason), countText(count))),
  ]);
  if (lastFailures.length === 0) return summary;
  const lines = lastFailures.map(({ key, status, error }) =>
    row(code(key), `${words(status)} ${code(error?.message ?? "")}`),
  );
  return `${summary}\n${table(lines)}`;
}

const MAX_FINDINGS_SHOWN = 20;

/** How the jobs of `corral ci` ended. */
function ciHtml(end: CiEnd): string {
  const { ends, base, head, isChanged, trail } = end;
  const { tests, coverage } = ciTotals(ends);
  const findings = findingsIn(end);
  const [commit, rules] = [head, base].map((id) => code(id.slice(0, 12)));
  const rows = [
    row("corral ci", `${commit}, by the rules of ${rules}${isChanged ? "; the head changes ci.yaml: not obeyed" : ""}`),
    ...ends.map(({ step, status, result }) =>
      row(code(step.title), `${words(status)}${result === null ? "" : `, ${durationText(result.durationMs)}`}`),
    ),
    ...(Object.values(tests).some((count) => count > 0) ? [row("tests, as the head reports", countsText(tests))] : []),
    ...(coverage === null ? [] : [row("coverage, as the head reports", `${coverage.toFixed(2)}% of lines`)]),
    ...(trail === null ? [] : [row("audit trail", `record ${trail.seq}, ${code(trail.hash)}`)]),
  ];
  const shown = findings.slice(0, MAX_FINDINGS_SHOWN);
  const found = shown.map(({ file, line, message }) => row(`${code(file)} ${line}`, code(message)));
  return [table(rows), ...(found.length === 0 ? [] : [table(found)])].join("\n");
}

function table(rows: readonly string[]): string {
  return `<table>\n${rows.join("\n")}\n</table>`;
}

function row(head: string, text: string): string {
  return `<tr><th align="left">${head}</th><td>${text}</td></tr>`;
}

function code(text: string): string {
  return text === "" ? "" : `<code>${escaped(text)}</code>`;
}

/** A status of Corral's own, which has no character of Markdown or HTML. */
function words(status: string): string {
  return escaped(status.replaceAll("_", " "), 40);
}

function countsText(counts: Readonly<Record<string, number>>): string {
  const shown = Object.entries(counts).filter(([, count]) => count > 0);
  return shown.map(([name, count]) => `${countText(count)} ${words(name)}`).join(", ");
}

function deniedText(denied: NonNullable<RunResult["network"]>["denied"]): string {
  const shown = denied.slice(0, MAX_DENIED).map(({ to, reason }) => `${code(to)} (${words(reason)})`);
  const rest = denied.length - shown.length;
  return [...shown, ...(rest > 0 ? [`${rest} more`] : [])].join(", ");
}

/** The end of an output, closed until the reader opens it. */
function details(title: string, output: string): string {
  const end = output.trimEnd();
  if (end === "") return "";
  const kept = end.length > MAX_OUTPUT_CHARS ? `…${end.slice(-MAX_OUTPUT_CHARS)}` : end;
  const lines = kept.split(/\r\n?|\n/).map((line) => escaped(line, MAX_OUTPUT_CHARS + 1));
  return `<details><summary>${clipped(title, 40)}</summary><pre>${lines.join("&#10;")}</pre></details>`;
}

type Step = Pick<Terminal, "env" | "stderr">;

/** GitHub shows no summary of a step that is larger. */
const MAX_FILE_BYTES = 1024 * 1024;

/** Appends how a run ended to the file that GitHub Actions shows as the summary of a step, if there is one. */
export async function addRunToStepSummary(result: RunResult, terminal: Step): Promise<void> {
  await add(terminal, async () => runHtml(result));
}

/** The same for the jobs of `corral ci`. */
export async function addCiToStepSummary(end: CiEnd, terminal: Step): Promise<void> {
  await add(terminal, async () => ciHtml(end));
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

/** GitHub shows ten of a step. */
const MAX_ANNOTATIONS = 10;

/**
 * Findings as annotations of a step of GitHub Actions. The runner reads these commands and then no more: it gets another token, which nothing
 * that was printed can know. All output of the jobs must have gone to standard error before, for the runner reads the streams apart.
 */
export function annotate(
  findings: readonly CiFinding[],
  { stderr, commandsToken }: Pick<Terminal, "stderr" | "commandsToken">,
): void {
  if (commandsToken === undefined || findings.length === 0) return;
  const lines = findings.slice(0, MAX_ANNOTATIONS).map(({ file, line, message }) => {
    return `::error file=${property(file)},line=${line},title=corral ci::${data(message)}`;
  });
  const stop = `::stop-commands::${randomBytes(16).toString("hex")}`;
  // What was printed last may lack its line break.
  stderr.write(`\n${[`::${commandsToken}::`, ...lines, stop].join("\n")}\n`);
}

/** As the runner decodes it. A line has no second command: `##[` is one anywhere in a line. */
function data(text: string): string {
  return printableLine(text, 1000).replaceAll("##[", "## [").replaceAll("%", "%25");
}

function property(text: string): string {
  return data(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
}
