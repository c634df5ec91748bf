import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { CI_FILE } from "../../declarations/ci/ci-yaml.ts";
import { CommitFiles } from "../../git/stage.ts";
import { type CiEnd, type CiStepEnd, isGood } from "../../operations/ci/ci-end.ts";
import { type CiTotals, ciTotals, findingsIn } from "../../operations/ci/findings.ts";
import { type CiSelection, type CiStep, fetcherOf, imageOf, planCi } from "../../operations/ci/plan-ci.ts";
import { type CiSource, checkedCi, ciSource, explainedCi, runCi } from "../../operations/ci/run-ci.ts";
import { deniedLines } from "../../operations/wording/question-text.ts";
import { nullFor } from "../../platform/errno.ts";
import type { RunEvent } from "../../run/model/events.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted, durationText } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import { addCiToStepSummary, annotate } from "../github/step-summary.ts";
import { endingText, troubleText } from "../run/tree.ts";
import { countOf, UsageError } from "../terminal/arguments.ts";
import {
  EXIT,
  exitStatusOf,
  printJson,
  printList,
  printResult,
  say,
  stoppable,
  type Terminal,
} from "../terminal/terminal.ts";
import { ImageLines, workerTextTo } from "../terminal/worker-text.ts";
import { eventCommits } from "./event.ts";

export interface CiRunOptions {
  readonly base: string;
  readonly head: string;
  readonly event?: boolean;
  readonly job: readonly string[];
  readonly matrix: readonly string[];
  readonly out: string;
  readonly concurrency: string;
  readonly json?: boolean;
}

/** `corral ci run`. */
export async function ciRunVerb(options: CiRunOptions, terminal: Terminal): Promise<number> {
  const { cwd, env } = terminal;
  const tell = (line: string): void => say(terminal, line);
  using stop = stoppable(terminal, tell);
  const images = new ImageLines();
  const { base, head } = options.event ? await eventCommits(terminal, stop.signal) : options;
  const end = await runCi({
    base,
    head,
    cwd,
    out: resolve(cwd, options.out),
    selection: selectionIn(options),
    concurrency: countOf("--concurrency", options.concurrency),
    machine: { stateDir: stateDirFrom(env), engineEnv: env },
    signal: stop.signal,
    emit(event: RunEvent) {
      for (const line of images.see(event)) tell(line);
      if (event.type === "trouble") tell(troubleText(event));
    },
    onSource: (source) => tellSource(source, tell),
    onStart: ({ title }) => tell(`corral: ${title}: started`),
    onEnd: (one) => tellEnd(one, options, terminal),
  });
  if (options.json) printJson(terminal, jsonOf(end));
  else {
    const said = reportsText(ciTotals(end.ends));
    if (said !== null) tell(`corral: all reports: ${said}`);
    const bad = end.ends.filter(({ status }) => !isGood(status));
    const summary = `${counted(end.ends.length, "step")}, ${bad.length === 0 ? "all succeeded" : `${bad.length} did not succeed`}`;
    tell(`corral: ${summary}; ${printableLine(options.out, 300)}/ has the results`);
  }
  await addCiToStepSummary(end, terminal);
  if (!options.json) annotate(findingsIn(end), terminal);
  return statusOf(end);
}

/** Null: no report says anything. */
function reportsText({ tests: { passed, failed, error, skipped }, coverage }: CiTotals): string | null {
  const all = passed + failed + error + skipped;
  const bad = [`${passed} passed`, `${failed + error} failed`, ...(skipped === 0 ? [] : [`${skipped} skipped`])];
  const words = [
    ...(all === 0 ? [] : [`${counted(all, "test")}, ${bad.join(", ")}`]),
    ...(coverage === null ? [] : [`coverage ${coverage.toFixed(2)}% of lines`]),
  ];
  return words.length === 0 ? null : words.join("; ");
}

function selectionIn({ job, matrix }: CiRunOptions): CiSelection {
  const values = matrix.map((raw) => {
    const [, axis, value] = /^([a-z][a-z0-9_]*)=([A-Za-z0-9._-]+)$/.exec(raw) ?? [];
    if (axis === undefined || value === undefined)
      throw new UsageError(`--matrix takes AXIS=VALUE such as node=22, not ${printableLine(raw, 80)}`);
    return [axis, value] as const;
  });
  return { ...(job.length === 0 ? {} : { jobs: job }), matrix: Object.fromEntries(values) };
}

function tellSource({ base, head, isChanged }: CiSource, tell: (line: string) => void): void {
  const what = base === head ? `commit ${short(head)}` : `commit ${short(head)} by the rules of ${short(base)}`;
  tell(`corral: testing ${what}`);
  if (isChanged) tell(`corral: the head changes ${CI_FILE}; this run does not obey the change`);
}

const short = (id: string): string => id.slice(0, 12);

/** What a job printed is shown when it has ended: jobs run at the same time. */
function tellEnd({ step, status, result, reports }: CiStepEnd, { json }: CiRunOptions, terminal: Terminal): void {
  if (result !== null && !json) {
    for (const stream of ["stdout", "stderr"] as const) {
      // Where annotations follow, all is in one stream: nothing that a job printed comes after them.
      const to = terminal.commandsToken === undefined ? terminal[stream] : terminal.stderr;
      const text = workerTextTo(to);
      to.write(text.piece(result[stream]));
      to.write(text.end());
    }
  }
  const took = result === null ? "" : ` in ${durationText(result.durationMs)}`;
  const code = result === null || isGood(status) ? "" : `, exit status ${exitStatusOf(result)}`;
  say(terminal, `corral: ${step.title}: ${WORDS[status] ?? status.replaceAll("_", " ")}${code}${took}`);
  if (result === null) return;
  if (result.status !== "failed" && result.error !== null) say(terminal, endingText(result));
  for (const line of deniedLines(result)) say(terminal, line);
  if (reports === null) return;
  const said = reportsText(ciTotals([{ reports }]));
  if (said !== null) say(terminal, `corral: ${step.title}: ${said}`);
  for (const { file, why } of reports.faults.slice(0, MAX_FAULTS))
    say(terminal, `corral: ${step.title}: the report ${printableLine(file, 200)} was not read: ${why}`);
}

const MAX_FAULTS = 10;

const WORDS: Readonly<Record<string, string>> = {
  kept: "its packages are in the cache",
  skipped: "skipped, since what it needs did not succeed",
};

function statusOf({ ends }: CiEnd): number {
  const has = (...some: CiStepEnd["status"][]): boolean => ends.some(({ status }) => some.includes(status));
  if (has("cancelled")) return EXIT.cancelled;
  if (has("lost")) return EXIT.engineTrouble;
  if (has("refused", "denied")) return EXIT.refused;
  return ends.every(({ status }) => isGood(status)) ? 0 : EXIT.someFailed;
}

function jsonOf({ ends, ...commits }: CiEnd) {
  const steps = ends.map(({ step, status, result, reports }) => {
    const part = step.kind === "part" ? { job: step.job.name, matrix: step.values } : {};
    return { name: step.name, title: step.title, kind: step.kind, ...part, status, result, reports };
  });
  return { ...commits, status: steps.every(({ status }) => isGood(status)) ? "succeeded" : "failed", steps };
}

interface CiLookOptions {
  readonly base?: string;
  readonly json?: boolean;
}

/** `corral ci check`. Mistakes are an error with all of them. */
export async function ciCheckVerb(options: CiLookOptions, terminal: Terminal): Promise<number> {
  const file = await fileOf(options, terminal);
  const steps = planCi(file);
  printList(terminal, options.json, steps.map(listed(steps)), {
    head: ["STEP", "RUNS", "IMAGE", "AFTER"],
    rowOf: ({ title, runs, image, needs }) => [title, runs, image, needs.join(", ") || "-"],
    none: "There are no jobs.",
  });
  return 0;
}

function listed(steps: readonly CiStep[]) {
  return (step: CiStep) => {
    const { name, title, needs } = step;
    if (step.kind === "fetch")
      return { name, title, needs, runs: `${step.tool ?? step.job.worker}: fetch`, image: fetcherOf(step).image };
    return { name, title, needs, runs: printableLine(step.job.run ?? "", 40), image: imageOf(step, steps) };
  };
}

/** `corral ci explain`: the packaged workers as they are, to read and to write others by. */
export async function ciExplainVerb(name: string, options: CiLookOptions, terminal: Terminal): Promise<number> {
  const file = await fileOf(options, terminal);
  const { corral, workers } = await explainedCi(file, name, terminal.cwd);
  printResult(terminal, options.json, { corral, workers: Object.fromEntries(workers) }, () =>
    [`# corral.yaml\n${corral}`, ...[...workers].map(([key, text]) => `# workers/${key}.worker\n${text}`)].join("\n"),
  );
  return 0;
}

async function fileOf({ base }: CiLookOptions, { cwd }: Terminal) {
  if (base !== undefined) {
    await using files = await CommitFiles.open(cwd, AbortSignal.timeout(60_000));
    return (await ciSource(files, { base, head: base })).file;
  }
  const fileAt = async (path: string) => await readFile(join(cwd, path), "utf8").catch(nullFor("ENOENT"));
  const text = await fileAt(CI_FILE);
  if (text === null) throw new UsageError(`there is no ${CI_FILE} here; docs/ci.md of Corral shows one`);
  return await checkedCi(text, CI_FILE, fileAt);
}
