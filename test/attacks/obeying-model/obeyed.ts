import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TranscriptEntry, TranscriptFolder } from "../../../src/agent/transcript.ts";
import type { RunResult } from "../../../src/index.ts";
import type { Attachment } from "../../../src/run/model/job.ts";
import {
  type OpenFixtureOptions,
  openProject,
  type ProjectFixture,
  type ProjectSpec,
  writable,
} from "../../run/project-fixture.ts";
import { type Canaries, layCanaries } from "./canaries.ts";

/** What a model says to call, one answer after another: each call is a tool's name and its input. */
export type Call = readonly [tool: string, input: unknown];
export type Answers = readonly (readonly Call[])[];

/** What came of one call, as the model was told. */
export interface Outcome {
  readonly tool: string;
  /** Null where it was not refused. */
  readonly code: string | null;
  readonly text: string;
}

/** What came of everything that a model asked for. */
export interface Obeyed {
  readonly result: RunResult;
  /** In the order of the calls, those of the root agent alone. */
  readonly outcomes: readonly Outcome[];
  /** `tool CODE`, or `tool done`, in the same order. */
  readonly codes: readonly string[];
  /** What became of the canaries, in sentences; none where nothing got out. */
  readonly harm: readonly string[];
}

export interface ObeyingSpec extends Partial<ProjectSpec> {
  /** More of the worker `a`, whose model obeys. */
  readonly agent?: Readonly<Record<string, unknown>>;
  readonly options?: OpenFixtureOptions;
  readonly attachments?: readonly Attachment[];
  /** Folders that may change besides `out`. */
  readonly alsoWritten?: readonly string[];
  /** What other agents say, by the name of their worker, whose model is `script/scripts/NAME.jsonl`. */
  readonly others?: Readonly<Record<string, Answers>>;
  /** Done before the run, once the canaries are laid. */
  readonly before?: (project: ProjectFixture, canaries: Canaries) => Promise<void>;
  /** Done after the run, as long as the project is there. */
  readonly after?: (project: ProjectFixture) => Promise<void>;
}

/** Every file tool, and commands, in a folder to read and one to write to; nothing asks anybody. */
const AGENT = {
  model: "script/scripts/a.jsonl",
  tools: "all",
  sandbox: { zones: [{ name: "docs" }, writable("out")] },
  shell_rules: { default: "pre_approved" },
};

/**
 * Has an agent whose model obeys do all of it, and looks what became of the canaries. `answers` may name their places. The
 * project is gone when this answers.
 */
export async function obey(
  answers: Answers | ((canaries: Canaries, project: ProjectFixture) => Answers),
  spec: ObeyingSpec = {},
): Promise<Obeyed> {
  const { agent = {}, options = {}, attachments = [], alsoWritten = [], others = {}, before, after, ...rest } = spec;
  const { workers = {}, zones = {}, files = {}, ...more } = rest;
  await using project = await openProject(
    {
      ...more,
      workers: { a: { ...AGENT, ...agent }, ...workers },
      zones: { docs: "ro", out: "rw", closed: "rw", ...zones },
      files: { "docs/a.txt": "a document\n", "scripts/none.jsonl": "", ...files },
    },
    options,
  );
  await mkdir(join(project.dir, "scripts"), { recursive: true });
  await using canaries = await layCanaries({ project, writable: ["out", "scripts", ...alsoWritten] });
  await before?.(project, canaries);
  const said = typeof answers === "function" ? answers(canaries, project) : answers;
  for (const [name, lines] of Object.entries({ a: said, ...others }))
    await writeFile(join(project.dir, "scripts", `${name}.jsonl`), scriptOf(lines));

  const result = await project.run("a", { attachments });
  // What is not played attacks nothing.
  if (result.error?.code === "SCRIPT_FAILED") throw new Error(result.error.message);
  await after?.(project);
  const transcripts = new TranscriptFolder(project.stateDir, project.corral.project.dir);
  const outcomes = outcomesIn((await transcripts.read(result.run)) ?? "");
  const all = await Promise.all((await transcripts.list()).map(({ run }) => transcripts.read(run)));
  const events = project.events.map((event) =>
    event.type === "output" ? { ...event, chunk: event.chunk.toString("latin1") } : event,
  );
  const harm = await canaries.harm([JSON.stringify(result), JSON.stringify(events), ...all.map((one) => one ?? "")]);
  const traces = (await project.traces()).map((trace) => `left behind: ${trace}`);
  const codes = outcomes.map(({ tool, code }) => `${tool} ${code ?? "done"}`);
  return { result, outcomes, codes, harm: [...harm, ...traces] };
}

/** As a transcript has it, which takes any name and any JSON. */
function scriptOf(answers: Answers): string {
  const last = { type: "answer", say: "All done.", calls: [] };
  const lines = answers.map((calls) => ({
    type: "answer",
    calls: calls.map(([tool, input]) => ({ tool, input })),
  }));
  return [...lines, last].map((line) => JSON.stringify(line)).join("\n");
}

function outcomesIn(transcript: string): Outcome[] {
  return transcript
    .split("\n")
    .filter((line) => line !== "")
    .map((line): TranscriptEntry => JSON.parse(line))
    .flatMap((entry) => (entry.type === "result" ? [{ tool: entry.tool, code: entry.code, text: entry.text }] : []));
}
